"""An object store that speaks S3, in this process: moto's server, which keeps all in memory and checks no key."""

from collections.abc import Iterator
from typing import Any

import boto3
import requests
from moto.server import ThreadedMotoServer

from dagster_iceberg_spark import AwsCredentials, S3Store

REGION = "eu-central-1"
KEYS = AwsCredentials(access_key_id="AKIAIOSFODNN7EXAMPLE", secret_access_key="wJalr/hush+hush=")


class S3Bucket:
    """A store with one bucket."""

    bucket = "lake"
    keys: AwsCredentials
    endpoint: str

    def make_bucket(self) -> None:
        self.client("s3").create_bucket(Bucket=self.bucket, CreateBucketConfiguration={"LocationConstraint": REGION})

    def client(self, service: str) -> Any:
        """A client of another maker, to look behind the engines."""
        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=self.keys.access_key_id,
            aws_secret_access_key=self.keys.secret_access_key,
        )

    def store(self, credentials: AwsCredentials | None = None) -> S3Store:
        given = credentials or self.keys
        return S3Store(endpoint=self.endpoint, path_style_access=True, region=REGION, credentials=given)

    def paths(self, prefix: str) -> Iterator[str]:
        """The objects below a prefix."""
        for page in self.client("s3").get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix):
            yield from (item["Key"] for item in page.get("Contents", ()))


class S3Server(S3Bucket):
    """moto's."""

    keys = KEYS

    def __init__(self) -> None:
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.endpoint = f"http://{host}:{port}"
        requests.post(f"{self.endpoint}/moto-api/reset", timeout=30).raise_for_status()  # another server's may be there
        self.make_bucket()

    def close(self) -> None:
        self._server.stop()
