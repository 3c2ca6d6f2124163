"""Azurite, Microsoft's emulator of Azure Storage, from npm: it checks keys and signatures."""

import base64
import datetime as dt
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from azure.storage.blob import BlobServiceClient, ContainerSasPermissions, generate_container_sas

from dagster_iceberg_spark import AdlsStore
from tests.lakes import free_port, wait_for_port
from tests.servers.programs import made_once, program, trusting

AZURITE_VERSION: Final = "3.35.0"
ACCOUNT: Final = "lakehouse"
KEY: Final = base64.b64encode(b"hush" * 8).decode()
WRONG_KEY: Final = base64.b64encode(b"hash" * 8).decode()
INSTALL_SECONDS: Final = 600
START_SECONDS: Final = 60
_NODE: Final = ("nodejs", "npm")


class Azurite:
    """The emulator, with one container."""

    container = "lake"

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self._log = directory / "azurite.log"
        command = [
            program("node", *_NODE),
            str(azurite()),
            "--location",
            str(directory / "data"),
            "--blobHost",
            "127.0.0.1",
        ]
        command += ["--blobPort", str(self.port), "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=directory,
                env={**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"},
            )
        wait_for_port(self.port, self._process, self._log, seconds=START_SECONDS)
        self.client().create_container(self.container)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}/{ACCOUNT}"

    def warehouse(self, directory: str, *, container: str = container) -> str:
        return f"abfss://{container}@{ACCOUNT}.dfs.core.windows.net/{directory}"

    def store(self, **login: Any) -> AdlsStore:
        return AdlsStore(endpoint=self.endpoint, **(login or {"account_key": KEY}))

    def signature(self) -> str:
        """A shared access signature for the container."""
        return generate_container_sas(
            ACCOUNT,
            self.container,
            account_key=KEY,
            permission=ContainerSasPermissions(read=True, write=True, delete=True, list=True, create=True, add=True),
            expiry=dt.datetime.now(dt.timezone.utc) + dt.timedelta(hours=1),
        )

    def client(self) -> BlobServiceClient:
        """A client beside the engines', to look behind them."""
        return BlobServiceClient(self.endpoint, credential={"account_name": ACCOUNT, "account_key": KEY})

    def paths(self, prefix: str) -> Iterator[str]:
        """The blobs below a prefix."""
        yield from self.client().get_container_client(self.container).list_blob_names(name_starts_with=prefix)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def azurite() -> Path:
    """Return the emulator's program, installed once for each user."""
    return (
        made_once(f"azurite-{AZURITE_VERSION}", _install)
        / "node_modules"
        / "azurite"
        / "dist"
        / "src"
        / "blob"
        / "main.js"
    )


def _install(scratch: Path) -> Path:
    directory = scratch / "azurite"
    directory.mkdir()
    npm = program("npm", *_NODE)
    command = [npm, "install", "--prefix", str(directory), "--no-audit", "--no-fund", "--ignore-scripts"]
    answer = subprocess.run(
        [*command, f"azurite@{AZURITE_VERSION}"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=INSTALL_SECONDS,
        env=trusting(),
        stdin=subprocess.DEVNULL,
    )
    if answer.returncode:
        pytest.fail(f"npm cannot install azurite:\n{(answer.stdout + answer.stderr)[-4000:]}")
    return directory
