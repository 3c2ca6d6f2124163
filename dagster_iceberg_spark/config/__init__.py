"""What a user may configure; every field's description is the text that Dagster's UI shows."""
