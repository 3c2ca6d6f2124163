"""File access with requests that the catalog signs."""

import asyncio
import sys
from typing import Any

import pytest
from botocore import UNSIGNED
from botocore.awsrequest import AWSRequest
from pyiceberg.io.fsspec import FsspecFileIO, S3V4RestSigner

from dagster_iceberg_spark import ConfigurationError
from dagster_iceberg_spark.pyiceberg_fixes.remote_signing import SigningFileIO

PROPERTIES = {"uri": "http://127.0.0.1:1", "s3.endpoint": "http://127.0.0.1:2", "client.region": "eu-central-1"}


def test_each_table_has_its_own_file_system_for_all_threads() -> None:
    """Tables may have different signers, so they do not share the file systems that s3fs caches by arguments."""
    one, other = SigningFileIO(PROPERTIES), SigningFileIO(PROPERTIES)
    assert one.get_fs("s3") is one.get_fs("s3a")
    assert one.get_fs("s3") is not other.get_fs("s3")


def test_other_files_have_their_usual_file_system() -> None:
    assert SigningFileIO(PROPERTIES).get_fs("file").protocol == ("file", "local")


def test_a_missing_s3fs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(ConfigurationError, match=r"install `dagster-iceberg-spark\[remote-signing\]`"):
        SigningFileIO(PROPERTIES).get_fs("s3")


@pytest.fixture
def signed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests sent to the catalog for signing."""
    requests: list[Any] = []
    monkeypatch.setattr(S3V4RestSigner, "__call__", lambda _, request, **__: requests.append(request))
    return requests


def sign_by_new_client(files: FsspecFileIO) -> None:
    """Sign with a client that s3fs creates after the file system, as it does in its own event loop."""
    store = files.get_fs("s3")
    store.connect(refresh=True)

    about = {"signature_version": UNSIGNED, "signing_name": "s3", "region_name": "r", "operation_name": "GetObject"}

    async def emit() -> None:
        request = AWSRequest("GET", "http://h/k")
        await store.s3.meta.events.emit("before-sign.s3.GetObject", request=request, request_signer=None, **about)

    asyncio.run(emit())


def test_each_client_signs(signed: list[Any]) -> None:
    sign_by_new_client(SigningFileIO(PROPERTIES))
    assert len(signed) == 1


def plain() -> FsspecFileIO:
    return FsspecFileIO({**PROPERTIES, "s3.signer": "S3V4RestSigner"})


def test_pyiceberg_still_shares_clients_between_signers() -> None:
    """https://github.com/apache/iceberg-python/issues/3896"""
    assert plain().get_fs("s3") is plain().get_fs("s3")


def test_pyiceberg_still_has_clients_without_signer(signed: list[Any]) -> None:
    """https://github.com/apache/iceberg-python/issues/3625"""
    sign_by_new_client(plain())
    assert signed == []
