"""An object store that speaks S3 and checks who asks: Versity's gateway over a directory, built once."""

import os
import subprocess
from pathlib import Path
from typing import Final

from dagster_iceberg_spark import AwsCredentials
from tests.lakes import free_port, wait_for_port
from tests.servers.programs import go_program
from tests.servers.s3 import REGION, S3Bucket

MODULE: Final = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
KEYS: Final = AwsCredentials(access_key_id="LAKEKEEPER", secret_access_key="vErSiTy/hush+hush=")
START_SECONDS: Final = 60


class VersityGateway(S3Bucket):
    """The gateway, with one account."""

    keys = KEYS

    def __init__(self, directory: Path) -> None:
        port = free_port()
        self.endpoint = f"http://127.0.0.1:{port}"
        data, log_path = directory / "data", directory / "versity.log"
        data.mkdir()
        command = [str(go_program(MODULE)), "--port", f"127.0.0.1:{port}", "--region", REGION, "--quiet"]
        account = {"ROOT_ACCESS_KEY": str(KEYS.access_key_id), "ROOT_SECRET_KEY": str(KEYS.secret_access_key)}
        with log_path.open("w") as log:
            self._process = subprocess.Popen(
                [*command, "posix", str(data)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=directory,
                env={**os.environ, **account},
            )
        wait_for_port(port, self._process, log_path, seconds=START_SECONDS)
        self.make_bucket()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
