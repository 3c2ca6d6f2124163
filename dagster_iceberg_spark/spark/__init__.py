"""Everything that changes tables, through the public DataFrame and SQL APIs of classic Spark and Spark Connect."""
