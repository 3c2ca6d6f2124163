"""Project Nessie, from its published jar: it lends keys of the store, and shows the newest snapshot only.

It needs a newer Java than Spark does, which a package of PyPI brings.
"""

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import requests

from tests.lakes import free_port
from tests.servers.jars import fetched, newer_java
from tests.servers.programs import is_ready
from tests.servers.s3 import KEYS, REGION, S3Server

NESSIE_VERSION: Final = "0.99.0"
IVY_FILE: Final = f"""\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="dagster-iceberg-spark" module="nessie"/>
  <dependencies>
    <dependency org="org.projectnessie.nessie" name="nessie-quarkus" rev="{NESSIE_VERSION}" conf="default->master">
      <artifact name="nessie-quarkus" type="jar" m:classifier="runner"/>
    </dependency>
  </dependencies>
</ivy-module>
"""
ROLE: Final = "arn:aws:iam::123456789012:role/lake"
START_SECONDS: Final = 180
RUNNING: Final[dict[str, "Nessie"]] = {}
"""By the catalog's URI."""


class Nessie:
    """The server, its versions in memory.

    Args:
        directory: Of its log.
        s3: Keeps the tables, and lends the keys.
    """

    def __init__(self, directory: Path, s3: S3Server) -> None:
        self.port = free_port()
        self._s3 = s3
        self._log = directory / "nessie.log"
        store = "nessie.catalog.service.s3.default-options"
        properties = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": self.port,
            "quarkus.management.host": "127.0.0.1",
            "quarkus.management.port": free_port(),
            "quarkus.otel.sdk.disabled": "true",
            "nessie.version.store.type": "IN_MEMORY",
            "nessie.catalog.default-warehouse": "warehouse",
            "nessie.catalog.warehouses.warehouse.location": f"s3://{s3.bucket}/nessie",
            f"{store}.endpoint": s3.endpoint,
            f"{store}.path-style-access": "true",
            f"{store}.region": REGION,
            f"{store}.access-key": "urn:nessie-secret:quarkus:keys-of.s3",
            "keys-of.s3.name": KEYS.access_key_id,
            "keys-of.s3.secret": KEYS.secret_access_key,
            f"{store}.request-signing-enabled": "false",
            f"{store}.sts-endpoint": s3.endpoint,
            f"{store}.client-iam.enabled": "true",
            f"{store}.client-iam.assume-role": ROLE,
        }
        [jar] = fetched("nessie", IVY_FILE)
        command = [str(newer_java()), "-Xmx768m", *(f"-D{name}={value}" for name, value in properties.items())]
        with self._log.open("w") as log:
            who: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "cwd": directory}
            # The options of the tests' JVMs are those of an older Java.
            self._process = subprocess.Popen([*command, "-jar", str(jar)], env={}, **who)
        self._wait()
        RUNNING[self.uri] = self

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}/iceberg"

    def tag(self, name: str) -> None:
        """Give the newest commit a name."""
        trees = f"http://127.0.0.1:{self.port}/api/v2/trees"
        main = requests.get(f"{trees}/main", timeout=30).json()["reference"]
        requests.post(trees, params={"name": name, "type": "TAG"}, json=main, timeout=30).raise_for_status()

    def summaries(self, table: str) -> list[dict[str, str]]:
        """The summaries of a table's snapshots, oldest first, as Nessie's commits and the store have them."""
        url = f"http://127.0.0.1:{self.port}/api/v2/trees/main/history"
        answer = requests.get(url, params={"fetch": "ALL"}, timeout=30)
        answer.raise_for_status()
        found: dict[int, dict[str, str]] = {}
        for entry in answer.json()["logEntries"]:
            for operation in entry.get("operations") or ():
                if operation["key"]["elements"] != table.split("."):
                    continue
                if operation["type"] == "DELETE":
                    return list(found.values())[::-1]
                bucket, _, key = operation["content"]["metadataLocation"].removeprefix("s3://").partition("/")
                body = self._s3.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
                for snapshot in json.loads(body)["snapshots"]:
                    found.setdefault(snapshot["snapshot-id"], snapshot["summary"])
        return list(found.values())[::-1]

    def close(self) -> None:
        RUNNING.pop(self.uri, None)
        self._process.kill()
        self._process.wait()

    def _wait(self) -> None:
        def answers() -> bool:
            return requests.get(f"{self.uri}/v1/config", timeout=30).ok

        if not is_ready(self._process, answers, seconds=START_SECONDS):
            self.close()
            pytest.fail(f"Nessie did not start:\n{self._log.read_text()[-4000:]}")
