"""The configuration of every Spark session of the benchmarks. Nothing of Dagster is imported."""

SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.memory": "4g",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
}
