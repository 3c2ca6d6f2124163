"""Tables with a contract.

docs/contracts.md: A table with a contract; What the contract becomes; Who relies on it; From the command line
"""

import datetime as dt
import json
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from dagster_iceberg_spark import (
    ConfigurationError,
    IcebergPySparkIOManager,
    IcebergSparkResource,
    SqlCatalog,
    build_audit_checks,
    build_contract_checks,
    require_contracts,
)
from dagster_iceberg_spark.cli.app import app
from dagster_iceberg_spark.features.contracts.contract_files import read_contract
from dagster_iceberg_spark.testing import Lake, assert_rows
from tests.lakes import SPARK_CONF

CONTRACT = (Path(__file__).parent / "orders.odcs.yaml").read_text(encoding="utf-8")
COLUMNS = pa.schema(
    [("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("amount", pa.decimal128(9, 2)), ("status", pa.string())]
)
AT = dt.datetime(2024, 1, 2, tzinfo=dt.timezone.utc)
ROW = {"id": 1, "at": AT, "amount": Decimal("1.50"), "status": "open"}


@pytest.fixture
def contract(tmp_path: Path) -> Path:
    path = tmp_path / "orders.odcs.yaml"
    path.write_text(CONTRACT)
    return path


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(tmp_path / "lake")
    yield lake
    lake.close()


def orders(contract: Path | str, rows: Any = None, **metadata: Any) -> dg.AssetsDefinition:
    @dg.asset(name="orders", io_manager_key="iceberg", metadata={"iceberg/contract": str(contract), **metadata})
    def _orders() -> Any:
        return rows

    return _orders


def table(*rows: dict[str, Any], columns: pa.Schema = COLUMNS) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=columns)


def test_rows_that_keep_the_contract_are_published_with_its_version(contract: Path, lake: Lake) -> None:
    asset = orders(contract, table(ROW))
    result = lake.materialize(asset)
    (event,) = result.asset_materializations_for_node("orders")
    assert event.metadata["iceberg/contract_version"].value == "orders 2.1.0"
    stored = lake.table(asset)
    summary = stored.current_snapshot().summary.additional_properties  # type: ignore[union-attr]
    assert (summary["contract.name"], summary["contract.version"]) == ("orders", "2.1.0")
    assert [(field.name, field.required, field.doc) for field in stored.schema().fields] == [
        ("id", True, "Number of the order"),
        ("at", True, None),
        ("amount", False, None),
        ("status", False, None),
    ]
    assert stored.schema().identifier_field_names() == {"id"}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (table({**ROW, "amount": Decimal(-1)}), "found `amount_minimum`"),
        (table({**ROW, "status": "lost"}), "found `status_enum`"),
        (table(ROW, ROW), "found `primary_key`"),
        (table(), "found `table_rowCount`"),
        (table({**ROW, "at": None}), "expected no NULL in a required column"),
        (table(ROW).drop_columns("amount"), "found no column 'amount'"),
        (table(ROW).append_column("extra", pa.array(["x"])), "found the column 'extra'"),
        (table(ROW).set_column(0, "id", pa.array(["1"])), "found 'id' as string in place of long"),
        (table(ROW).set_column(0, "id", pa.array([1], pa.int32())), "found 'id' as int in place of long"),
    ],
)
def test_rows_that_break_the_contract_are_held_back(contract: Path, lake: Lake, rows: pa.Table, message: str) -> None:
    with pytest.raises(dg.Failure, match=message):
        lake.materialize(orders(contract, rows))


def test_a_narrower_type_is_stored_in_a_table_that_exists(contract: Path, lake: Lake) -> None:
    lake.materialize(orders(contract, table(ROW)))
    asset = orders(contract, table(ROW).set_column(0, "id", pa.array([7], pa.int32())))
    lake.materialize(asset)
    assert_rows(lake.rows(asset, "id"), [{"id": 7}])


def test_a_warning_publishes(contract: Path, lake: Lake) -> None:
    asset = orders(contract, table({**ROW, "status": None}))
    lake.materialize(asset)
    assert len(lake.rows(asset)) == 1


def test_a_new_version_adds_its_column(contract: Path, lake: Lake) -> None:
    lake.materialize(orders(contract, table(ROW)))
    added = "      - {name: at,"
    contract.write_text(CONTRACT.replace(added, "      - {name: note, logicalType: string}\n" + added))
    with pytest.raises(dg.Failure, match="found no column 'note'"):
        lake.materialize(orders(contract, table(ROW)))
    asset = orders(contract, table(ROW).append_column("note", pa.array(["x"])))
    lake.materialize(asset)
    assert lake.rows(asset, "note") == [{"note": "x"}]


def test_what_the_asset_sets_itself_is_added(contract: Path, lake: Lake) -> None:
    audits = {"iceberg/audits": {"few": "count(*) < 2"}}
    with pytest.raises(dg.Failure, match="found `few`"):
        lake.materialize(orders(contract, table(ROW, {**ROW, "id": 2}), **audits))
    names = {key.name for check in build_audit_checks([orders(contract, **audits)]) for key in check.check_keys}
    assert names == {"amount_minimum", "status_enum", "status_nullValues", "primary_key", "table_rowCount", "few"}


def test_a_service_level_is_an_asset_check(contract: Path) -> None:
    (checks,) = build_contract_checks([orders(contract)])
    assert [key.name for key in checks.check_keys] == ["fresh"]
    contract.write_text(CONTRACT.replace("freshness", "availability"))
    assert build_contract_checks([orders(contract)]) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("v3.1.0", "v2.2.0", "expected version 3 of the standard, found v2.2.0 in `apiVersion`, line 1"),
        ("version: 2.1.0\n", "", "expected a version, such as 1.0.0, found none in `version`"),
        ("logicalType: timestamp,", "logicalType: time,", "a type of at .*, found 'time', .* line 11"),
        ("status: active", "status: [active]", "expected a contract of the standard, found .* in `status`, line 6"),
        ("status: active", "state: active", "expected a contract of the standard, found .* in `state`, line 6"),
        ("schema:\n", "schema: [\n", "expected YAML, found "),
        ("      - {name: id,", "      - {", "expected a name, found none in `schema.0.properties.0`, line 10"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(contract: Path, old: str, new: str, message: str) -> None:
    assert old in CONTRACT
    contract.write_text(CONTRACT.replace(old, new))
    with pytest.raises(ConfigurationError, match=f"Cannot use the contract {contract}: .*{message}"):
        read_contract(str(contract))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="expected a file, relative to the working directory, found none at"):
        read_contract("nowhere.yaml")


def test_one_of_several_tables_is_named(contract: Path) -> None:
    lines = "  - {name: lines, properties: [{name: n, logicalType: integer}]}\n"
    contract.write_text(CONTRACT.replace("slaProperties", f"{lines}slaProperties"))
    assert [column.name for column in read_contract(f"{contract}#lines").columns] == ["n"]
    with pytest.raises(ConfigurationError, match="expected one table, or `#name` after the file, found orders, lines"):
        read_contract(str(contract))
    with pytest.raises(ConfigurationError, match="expected a table 'line', found orders, lines"):
        read_contract(f"{contract}#line")


def reader(requires: Any) -> dg.AssetsDefinition:
    @dg.asset(ins={"orders": dg.AssetIn()}, metadata={"iceberg/requires": requires})
    def revenue(orders: pa.Table) -> None: ...

    return revenue


@pytest.mark.parametrize("requires", ["orders >= 2", ["orders ~= 2.0", "shop-orders < 3"]])
def test_a_reader_of_a_version_that_fits_loads(contract: Path, requires: Any) -> None:
    definitions = dg.Definitions([orders(contract), reader(requires)], resources={"iceberg": dg.mem_io_manager})
    assert require_contracts(definitions) is definitions


@pytest.mark.parametrize(
    ("requires", "message"),
    [
        ("orders >= 3", "revenue: requires orders >= 3, found orders 2.1.0"),
        ("order >= 2", "revenue: no asset has the contract 'order'"),
        ("orders", "revenue: Cannot use `iceberg/requires`"),
    ],
)
def test_a_breaking_version_fails_when_the_code_location_loads(contract: Path, requires: Any, message: str) -> None:
    definitions = dg.Definitions([orders(contract), reader(requires)], resources={"iceberg": dg.mem_io_manager})
    with pytest.raises(ConfigurationError, match=message):
        require_contracts(definitions)


@pytest.fixture
def location(tmp_path: Path, contract: Path) -> Iterator[list[str]]:
    (tmp_path / "contracted.py").write_text(
        "import dagster as dg\n"
        "from dagster_iceberg_spark import IcebergPySparkIOManager, IcebergSparkResource, SqlCatalog\n"
        f"@dg.asset(io_manager_key='iceberg', metadata={{'iceberg/contract': {str(contract)!r}}})\n"
        "def orders(): ...\n"
        f"catalog = SqlCatalog(uri='sqlite:///{tmp_path}/c.db', warehouse='{tmp_path}/wh')\n"
        "spark = IcebergSparkResource(catalog=catalog)\n"
        "defs = dg.Definitions([orders], resources={'iceberg': IcebergPySparkIOManager(spark=spark, namespace='db')})\n"
    )
    yield ["-f", str(tmp_path / "contracted.py")]
    sys.modules.pop("contracted", None)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["contract", *arguments])


def test_the_commands_compare_and_export(tmp_path: Path, contract: Path, location: list[str]) -> None:
    result = invoke("check", *location)
    assert result.exit_code == 0, result.output
    assert "not checked: the table: the quality rule nothing: its type is sql; the service level retention" in (
        " ".join(result.output.split())
    )
    catalog = SqlCatalog(uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"{tmp_path}/wh")
    io_manager = IcebergPySparkIOManager(spark=IcebergSparkResource(catalog=catalog), namespace="db")
    dg.materialize([orders(contract, table(ROW))], resources={"iceberg": io_manager})
    exported = invoke("export", "orders", *location)
    assert exported.exit_code == 0, exported.output
    (tmp_path / "exported.yaml").write_text(exported.output)
    columns = read_contract(str(tmp_path / "exported.yaml")).columns
    assert columns == read_contract(str(contract)).columns
    assert invoke("check", *location).exit_code == 0

    contract.write_text(CONTRACT.replace('"decimal(9, 2)"', '"decimal(11, 2)"'))
    changed = invoke("check", "--json", *location)
    assert changed.exit_code == 1
    (finding,) = [item for item in json.loads(changed.output) if item["step"] == "table"]
    assert "'amount' is decimal(9, 2), `dagster/column_schema` says decimal(11, 2)" in finding["found"]


def test_the_commands_refuse_what_is_not_there(tmp_path: Path, location: list[str]) -> None:
    unknown = invoke("export", "order", *location)
    assert unknown.exit_code == 2
    assert "Cannot export the contract of order: expected one of the assets with a table: none" in unknown.output


@pytest.mark.spark
def test_spark_keeps_contracts_too(contract: Path, classic_directory: Path, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "spark", spark_config=SPARK_CONF)

    @dg.asset(name="orders", io_manager_key="iceberg", metadata={"iceberg/contract": str(contract)})
    def of_spark(spark: IcebergSparkResource) -> Any:
        columns = "cast(id as bigint) as id, at, cast(amount as decimal(9, 2)) as amount, status"
        rows = (
            "values (1, timestamp '2024-01-02 00:00:00Z', 1.5, 'open'), (2, timestamp '2024-01-02 00:00:00Z', -1, 'x')"
        )
        return spark.spark_session.sql(f"select {columns} from {rows} as t(id, at, amount, status)")

    with pytest.raises(dg.Failure, match=r"`amount_minimum`.*`status_enum`"):
        lake.materialize(of_spark)
    lake.close()
