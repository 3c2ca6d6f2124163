"""Shows the rows of Iceberg tables in a DuckLake. The Iceberg tables stay the truth."""
