"""Tests of SQL models in YAML: `readings.test.yml` beside `readings.sql`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import dagster as dg
import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from dagster_iceberg_spark.assets.dagster_private.graph import loaded_inputs
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.features.components.sql_assets import model_of
from dagster_iceberg_spark.features.testing import SUFFIXES
from dagster_iceberg_spark.features.testing.assertion import assert_rows
from dagster_iceberg_spark.features.testing.lake import Lake


def _keys(value: Any) -> Any:
    return tuple(map(str, value)) if isinstance(value, list) else None if value is None else str(value)


_Partition: TypeAlias = Annotated[str | tuple[str, str] | None, BeforeValidator(_keys)]
"""YAML reads the key of a day as a date, and a range as a list."""


class _Given(BaseModel):
    """The rows of a table before the run."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _of_rows(cls, value: Any) -> Any:
        return {"rows": value} if isinstance(value, list) else value

    rows: list[dict[str, Any]] = []
    columns: dict[str, str] = {}
    partition: _Partition = None


class ModelTest(BaseModel):
    """A test of a SQL model, as its file describes it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(description="What the test shows.")
    partition: _Partition = Field(
        default=None, description="The partition of the run: a key, or the first and the last key of a range."
    )
    given: dict[str, _Given] = Field(
        default={},
        description="The rows of each table that the model reads: a list of rows, or `rows` and the types of their "
        "`columns` in Iceberg's notation, and the `partition` that they replace.",
    )
    expect: list[dict[str, Any]] = Field(description="The rows of the model, or of its partition.")
    ignore_order: bool = Field(default=True, description="Whether the order of the rows does not matter.")
    tolerance: float = Field(
        default=0.0, description="The largest difference between two numbers, or in seconds between two times."
    )
    partial: bool = Field(default=False, description="Whether only the columns of `expect` are compared.")


@dataclass(frozen=True, slots=True)
class TestFile:
    """A file with tests, and the SQL file of the model."""

    __test__ = False  # pytest collects no test from this class

    path: Path

    @property
    def model(self) -> Path:
        """The SQL file of the model: beside the tests, with the same name."""
        suffix = next(suffix for suffix in SUFFIXES if self.path.name.endswith(suffix))
        return self.path.with_name(f"{self.path.name.removesuffix(suffix)}.sql")

    def tests(self) -> list[ModelTest]:
        """Return the tests of the file.

        Raises:
            ConfigurationError: The file is no list of tests, or its model is missing.
        """
        refused = f"{self.path}"
        if not self.model.exists():
            raise ConfigurationError.refusing("use", refused, expected=f"{self.model.name} beside it", found="none")
        try:
            found = yaml.safe_load(self.path.read_text(encoding="utf-8"))
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            place = "" if mark is None else f" in line {mark.line + 1}"
            raise ConfigurationError.refusing(
                "use", refused, expected="YAML", found=f"{getattr(error, 'problem', 'none')}{place}"
            ) from error
        if not isinstance(found, list):
            raise ConfigurationError.refusing(
                "use", refused, expected="a list of tests, each with `name`, `given` and `expect`", found=_kind(found)
            )
        return [self._test(number, item) for number, item in enumerate(found, start=1)]

    def _test(self, number: int, item: Any) -> ModelTest:
        where = f"test {number} of {self.path}"
        if not isinstance(item, dict):
            raise ConfigurationError.refusing("use", where, expected="a mapping", found=_kind(item))
        try:
            return ModelTest(**item)
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)[0]
            key = ".".join(map(str, found["loc"]))
            raise ConfigurationError.refusing(
                "use", where, expected=f"the keys {', '.join(ModelTest.model_fields)}", found=f"`{key}`: {found['msg']}"
            ) from None


def test_files(path: Path) -> Iterator[TestFile]:
    """Yield the files with tests in a folder and the folders below it, or the file itself."""
    if path.is_file():
        yield TestFile(path)
        return
    for file in sorted(path.rglob("*")):
        if file.name.endswith(SUFFIXES):
            yield TestFile(file)


test_files.__test__ = False  # type: ignore[attr-defined]  # pytest collects no test from this function


def run_model_test(lake: Lake, definitions: dg.Definitions, file: TestFile, test: ModelTest) -> None:
    """Run a test in an empty lake.

    Raises:
        AssertionError: The rows differ.
        ConfigurationError: The code location has no such model, or a table that the model reads is not given.
    """
    __tracebackhide__ = True
    lake.empty()
    asset = _model_of(definitions, file)
    upstream = _upstream_of(asset)
    subject = f"{test.name!r} of {file.path}"
    known = list(dict.fromkeys((*upstream, asset.key)))
    given = {_key_of(name, known, subject): table for name, table in test.given.items()}
    missing = [key.to_user_string() for key in upstream if key not in given]
    if missing:
        raise ConfigurationError.refusing(
            "run",
            subject,
            expected="rows of all tables that the model reads",
            found=f"none of {', '.join(missing)}",
            hint="give a table without rows by the types of its columns: `{columns: {at: timestamptz}}`.",
        )
    for key, table in given.items():
        lake.given(key, table.rows, partition=table.partition, columns=table.columns)
    lake.materialize(asset.key, partition=test.partition)
    assert_rows(
        lake.rows(asset.key, partition=test.partition),
        test.expect,
        ignore_order=test.ignore_order,
        tolerance=test.tolerance,
        partial=test.partial,
    )


def _model_of(definitions: dg.Definitions, file: TestFile) -> dg.AssetsDefinition:
    """Return the asset of a SQL file."""
    for asset in definitions.resolve_asset_graph().assets_defs:
        model = model_of(asset) if asset.is_executable else None
        if model is not None and model.file.path.resolve() == file.model.resolve():
            return asset
    raise ConfigurationError.refusing(
        "run",
        f"the tests of {file.path}",
        expected=f"a code location with {file.model.name} in a SparkSqlComponent",
        found="one without it",
    )


def _upstream_of(asset: dg.AssetsDefinition) -> list[dg.AssetKey]:
    """Return the assets that the query reads. Those in `deps` are not loaded."""
    loaded = loaded_inputs(asset.node_def)
    return [key for name, key in asset.keys_by_input_name.items() if name in loaded]


def _key_of(name: str, known: list[dg.AssetKey], subject: str) -> dg.AssetKey:
    """Return the asset of a name: as the query has it, or its key. The model itself may have rows before the run."""
    found = [key for key in known if name in (key.to_user_string(), ".".join(key.path), key.path[-1])]
    if len(found) != 1:
        raise ConfigurationError.refusing(
            "run",
            subject,
            expected=f"tables that the model reads: {', '.join(key.to_user_string() for key in known)}, before the run",
            found=f"`{name}` in `given`",
        )
    return found[0]


def _kind(value: Any) -> str:
    kinds: Mapping[type, str] = {dict: "a mapping", list: "a list", type(None): "an empty file"}
    return kinds.get(type(value), f"a {type(value).__name__}")
