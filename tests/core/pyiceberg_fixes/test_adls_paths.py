"""Locations of Azure Data Lake Storage."""

from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO

from dagster_iceberg_spark.pyiceberg_fixes.adls_paths import FILE_IO

LOCATION = "abfss://lake@account.dfs.core.windows.net/db/t"


def test_the_path_starts_with_the_container() -> None:
    io = load_file_io({"py-io-impl": FILE_IO, "adls.account-name": "account", "adls.account-key": "a2V5"})
    assert io.new_input(LOCATION)._fs._strip_protocol(LOCATION) == "lake/db/t"  # type: ignore[attr-defined]


def test_pyiceberg_still_keeps_the_account_in_the_path() -> None:
    assert PyArrowFileIO.parse_location(LOCATION)[2] == "lake@account.dfs.core.windows.net/db/t"
