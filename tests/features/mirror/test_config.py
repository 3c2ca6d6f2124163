"""The configuration of a mirror.

docs/mirror.md: Limits
"""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pydantic import ValidationError

from dagster_iceberg_spark import DuckLakeMirror, IcebergPySparkIOManager, MetadataKeyError
from dagster_iceberg_spark.features.mirror.config import NoMirror
from dagster_iceberg_spark.features.mirror.options import MirrorSettings
from dagster_iceberg_spark.table.identifier import TableIdentifier

FLIGHTS = TableIdentifier(("nyc", "raw"), "flights")


def test_the_default_is_no_mirror() -> None:
    assert isinstance(IcebergPySparkIOManager().mirror, NoMirror)
    assert NoMirror().observer().mirrors.mirror_of(FLIGHTS, None, subject="flights") is None


def test_settings_without_a_mirror_are_refused() -> None:
    NoMirror().mirror_of(FLIGHTS, False, subject="flights")
    with pytest.raises(MetadataKeyError) as caught:
        NoMirror().mirror_of(FLIGHTS, MirrorSettings(mode="view"), subject="flights")
    assert "Cannot use `iceberg/mirror` of flights: expected an IO manager with a `mirror`, found none" in str(
        caught.value
    )
    assert "Hint: set `mirror=DuckLakeMirror(catalog=...)` of the IO manager." in str(caught.value)


@pytest.mark.parametrize(
    ("catalog", "kind", "address"),
    [
        ("sqlite:////data/mirror.ducklake", "sqlite", "/data/mirror.ducklake"),
        ("sqlite:///lake/mirror.ducklake", "sqlite", str(Path("lake/mirror.ducklake").absolute())),
        ("duckdb:////data/mirror.db", "duckdb", "/data/mirror.db"),
        ("postgresql://me:hush%40hush@host:5433/lake", "postgresql", "postgresql://me:hush%40hush@host:5433/lake"),
        ("postgres://host/lake", "postgresql", "postgres://host/lake"),
    ],
)
def test_a_uri_says_where_the_ducklake_is(catalog: str, kind: str, address: str) -> None:
    lake = DuckLakeMirror(catalog=catalog, data_path="s3://lake/mirror").ducklake()
    assert (lake.kind, lake.address, lake.data_path) == (kind, address, "s3://lake/mirror")


@pytest.mark.parametrize(
    "catalog", ["mysql://host/lake", "lake/mirror.ducklake", "sqlite://mirror", "sqlite:///", "ducklake:x", ""]
)
def test_another_uri_is_refused_when_the_code_location_loads(catalog: str) -> None:
    with pytest.raises(ValidationError, match=r"expected sqlite:///path, duckdb:///path or postgresql://"):
        DuckLakeMirror(catalog=catalog)


def test_the_password_of_a_catalog_is_shown_nowhere() -> None:
    mirror = DuckLakeMirror(catalog="postgresql://me:hush%40hush@host/lake")
    lake = mirror.ducklake()
    shown = f"{mirror!r} {lake!r} {lake} {lake.redact('failed for hush@hush and hush%40hush')}"
    assert "hush" not in shown
    assert str(lake) == "DuckLake at host:5432/lake"


@pytest.mark.parametrize(
    ("uri", "secret"),
    [
        ("postgresql://host/db?user=u&password=hushhush", "hushhush"),
        ("postgresql://u:s3cr%27et%5Cpw@host/db", r"s3cr\'et\\pw"),
        ("postgresql://u:s3cr%27et%5Cpw@host/db", r"s3cr\''et\\pw"),
        ("postgresql://host/db?sslpassword=hush%20hush", "hush hush"),
    ],
)
def test_a_password_is_hidden_however_it_is_spelled(uri: str, secret: str) -> None:
    assert DuckLakeMirror(catalog=uri).ducklake().redact(f"password={secret}.") == "password=********."


def test_a_misplaced_password_is_not_shown_either() -> None:
    with pytest.raises(ValidationError) as raised:
        DuckLakeMirror(catalog="mysql://me:hush@host/lake")
    assert "hush" not in str(raised.value)


def test_an_environment_variable_may_hold_the_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRROR", "sqlite:////data/mirror.ducklake")
    mirror = DuckLakeMirror(catalog=dg.EnvVar("MIRROR"))
    with dg.build_resources({"iceberg": IcebergPySparkIOManager(mirror=mirror)}) as resources:
        assert resources.iceberg.mirror.ducklake().address == "/data/mirror.ducklake"


@pytest.mark.parametrize(
    ("field", "value", "known"),
    [
        ("mode", "registr", "'view', 'register' or 'copy'"),
        ("compression", "brotli", "'snappy', 'zstd', 'gzip' or 'none'"),
        ("on_failure", "ignore", "'warn' or 'error'"),
    ],
)
def test_an_unknown_value_is_an_error_that_lists_the_known_ones(field: str, value: str, known: str) -> None:
    options: dict[str, Any] = {"catalog": "sqlite:////data/mirror.ducklake", field: value}
    with pytest.raises(ValidationError, match=known):
        DuckLakeMirror(**options)


def test_a_table_keeps_its_name_and_its_levels_become_one_schema() -> None:
    mirror = DuckLakeMirror(catalog="sqlite:////m", mode="copy", compression="zstd")
    chosen = mirror.mirror_of(FLIGHTS, None, subject="flights")
    assert chosen is not None
    assert (chosen.mirror.table, chosen.mirror.mode, chosen.mirror.compression) == (
        TableIdentifier(("nyc.raw",), "flights"),
        "copy",
        "zstd",
    )
    assert mirror.mirror_of(FLIGHTS, False, subject="flights") is None


def test_an_encrypted_ducklake_registers_nothing() -> None:
    mirror = DuckLakeMirror(catalog="sqlite:////m", encrypted=True)
    with pytest.raises(MetadataKeyError, match="expected the mode `view` or `copy` in an encrypted DuckLake"):
        mirror.mirror_of(FLIGHTS, MirrorSettings(mode="register"), subject="flights")
