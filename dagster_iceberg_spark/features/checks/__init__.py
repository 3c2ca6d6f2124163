"""Asset checks of Dagster: of tables against their definitions, and of audits."""
