"""Files whose requests the catalog signs."""

import sys

import pytest

from dagster_iceberg_spark import ConfigurationError
from dagster_iceberg_spark.catalog.signing import SigningFileIO

PROPERTIES = {"uri": "http://127.0.0.1:1", "s3.endpoint": "http://127.0.0.1:2", "client.region": "eu-central-1"}


def test_each_table_has_a_file_system_of_its_own_for_all_threads() -> None:
    """Another table's may have another signer: what s3fs caches by its arguments is not shared."""
    one, other = SigningFileIO(PROPERTIES), SigningFileIO(PROPERTIES)
    assert one.get_fs("s3") is one.get_fs("s3a")
    assert one.get_fs("s3") is not other.get_fs("s3")


def test_other_files_are_read_as_ever() -> None:
    assert SigningFileIO(PROPERTIES).get_fs("file").protocol == ("file", "local")


def test_the_library_that_lets_others_sign_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(ConfigurationError, match=r"install `dagster-iceberg-spark\[remote-signing\]`"):
        SigningFileIO(PROPERTIES).get_fs("s3")
