"""The jobs of the tests as a service of AWS starts them: `python -m tests.features.pipes.service_jobs <name>`.

Glue passes the parameters of Dagster Pipes as arguments, EMR in the environment.
"""

import sys

import boto3
from dagster_pipes import PipesCliArgsParamsLoader, PipesS3ContextLoader, PipesS3MessageWriter

from dagster_iceberg_spark.pipes import open_iceberg_pipes
from tests.features.pipes.jobs import JOBS

if __name__ == "__main__":
    s3 = boto3.client("s3")
    params_loader = PipesCliArgsParamsLoader()  # type: ignore[no-untyped-call]
    with open_iceberg_pipes(
        params_loader=params_loader if params_loader.is_dagster_pipes_process() else None,
        context_loader=PipesS3ContextLoader(client=s3),
        message_writer=PipesS3MessageWriter(client=s3),
    ) as opened:
        JOBS[sys.argv[1]](opened)
