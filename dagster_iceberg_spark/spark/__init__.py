"""All effects on tables, through Spark's public DataFrame and SQL API, classic and Connect alike."""
