"""SQL statements: their text, and that names stay inside their quotes."""

import pytest

from dagster_iceberg_spark.plan.write.write_plan import CreateTable
from dagster_iceberg_spark.spark import sql
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.partitioning import PartitionSpec, SortField, parse_partition_field
from dagster_iceberg_spark.table.schema import Field, IcebergType, ListType, MapType, Schema, StructType, parse_type
from dagster_iceberg_spark.table.sql_text import quote, table_name, text_literal
from dagster_iceberg_spark.table.updates import (
    AddColumn,
    AddPartitionField,
    CreateBranch,
    DescribeColumn,
    DropColumn,
    DropPartitionField,
    MoveColumn,
    RelaxColumn,
    RemoveProperties,
    RenameColumn,
    RenamePartitionField,
    SetIdentifierFields,
    SetProperties,
    SetSortOrder,
    TableUpdate,
    WidenColumn,
)
from tests.core.table.samples import schema, spec

FLIGHTS = TableIdentifier(("nyc",), "flights")
INT, STRING = parse_type("int"), parse_type("string")


def create(columns: Schema, *fields: str) -> CreateTable:
    partition_fields = PartitionSpec(tuple(parse_partition_field(field) for field in fields))
    return CreateTable(columns, partition_fields, {"b": "it's", "a": "1"}, None, ())


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        ("a", "`a`"),
        ("a b", "`a b`"),
        ("a`b", "`a``b`"),
        ("a.b", "`a.b`"),
        ("`", "````"),
        ("'; drop", "`'; drop`"),
        ("ü", "`ü`"),
    ],
)
def test_a_name_cannot_leave_its_backticks(name: str, quoted: str) -> None:
    assert quote(name) == quoted


@pytest.mark.parametrize(
    ("value", "literal"),
    [("a", "'a'"), ("it's", r"'it\'s'"), ("a\\", r"'a\\'"), ("\\'", r"'\\\''"), ('say "x"', "'say \"x\"'"), ("", "''")],
)
def test_a_string_cannot_leave_its_quotes(value: str, literal: str) -> None:
    assert text_literal(value) == literal


@pytest.mark.parametrize(
    ("identifier", "branch", "name"),
    [
        (FLIGHTS, "main", "`lake`.`nyc`.`flights`"),
        (FLIGHTS, "audit", "`lake`.`nyc`.`flights`.`branch_audit`"),
        (FLIGHTS, "a`b", "`lake`.`nyc`.`flights`.`branch_a``b`"),
        (TableIdentifier(("a.b", "c"), "d e"), "main", "`lake`.`a.b`.`c`.`d e`"),
    ],
)
def test_a_branch_is_another_part_of_the_name(identifier: TableIdentifier, branch: str, name: str) -> None:
    assert table_name("lake", identifier, branch) == name


@pytest.mark.parametrize(
    ("column_type", "name"),
    [
        (parse_type("int"), "INT"),
        (parse_type("long"), "BIGINT"),
        (parse_type("boolean"), "BOOLEAN"),
        (parse_type("double"), "DOUBLE"),
        (parse_type("timestamptz"), "TIMESTAMP_LTZ"),
        (parse_type("timestamp"), "TIMESTAMP_NTZ"),
        (parse_type("uuid"), "STRING"),
        (parse_type("fixed[16]"), "BINARY"),
        (parse_type("unknown"), "VOID"),
        (parse_type("variant"), "VARIANT"),
        (parse_type("decimal(9,2)"), "DECIMAL(9, 2)"),
        (ListType(INT), "ARRAY<INT>"),
        (MapType(STRING, ListType(parse_type("long"))), "MAP<STRING, ARRAY<BIGINT>>"),
        (
            StructType((Field("a b", INT, doc="it's"), Field("c", STRING))),
            r"STRUCT<`a b`: INT COMMENT 'it\'s', `c`: STRING>",
        ),
    ],
    ids=str,
)
def test_types_have_spark_s_names(column_type: IcebergType, name: str) -> None:
    assert sql.type_name(column_type) == name


def test_a_table_is_created_in_one_statement() -> None:
    columns = Schema((Field("ts", parse_type("timestamptz"), doc="when"), Field("weird `name`", INT)))
    statement = sql.create_table("lake", FLIGHTS, create(columns, "day(ts)", "c"), "s3://lake/t")
    assert statement == (
        "CREATE TABLE IF NOT EXISTS `lake`.`nyc`.`flights` (`ts` TIMESTAMP_LTZ COMMENT 'when', `weird ``name``` INT) "
        "USING iceberg PARTITIONED BY (day(`ts`), `c`) LOCATION 's3://lake/t' "
        r"TBLPROPERTIES ('a' = '1', 'b' = 'it\'s')"
    )


def test_clauses_for_partitions_and_location_are_optional() -> None:
    statement = sql.create_table("lake", FLIGHTS, create(schema(a="int")), None)
    assert "PARTITIONED" not in statement
    assert "LOCATION" not in statement


@pytest.mark.parametrize(
    ("change", "clause"),
    [
        (AddColumn(("a",), INT), "ADD COLUMN `a` INT"),
        (AddColumn(("s", "element", "x y"), STRING, "it's"), r"ADD COLUMN `s`.`element`.`x y` STRING COMMENT 'it\'s'"),
        (WidenColumn(("s", "x"), INT, parse_type("long")), "ALTER COLUMN `s`.`x` TYPE BIGINT"),
        (DescribeColumn(("a",), "new"), "ALTER COLUMN `a` COMMENT 'new'"),
        (AddPartitionField(parse_partition_field("day(ts)")), "ADD PARTITION FIELD day(`ts`)"),
        (
            AddPartitionField(parse_partition_field("bucket(4, id) as `my shard`")),
            "ADD PARTITION FIELD bucket(4, `id`) AS `my shard`",
        ),
        (AddPartitionField(parse_partition_field("c")), "ADD PARTITION FIELD `c`"),
        (DropPartitionField(parse_partition_field("truncate(3, c)")), "DROP PARTITION FIELD truncate(3, `c`)"),
        (DropPartitionField(parse_partition_field("day(ts) as d")), "DROP PARTITION FIELD `d`"),
        (
            RenamePartitionField(parse_partition_field("bucket(4, id) as shard"), "my part"),
            "REPLACE PARTITION FIELD `shard` WITH bucket(4, `id`) AS `my part`",
        ),
        (SetProperties({"b": "2", "a": "it's"}), r"SET TBLPROPERTIES ('a' = 'it\'s', 'b' = '2')"),
        (RemoveProperties(("b", "a'")), r"UNSET TBLPROPERTIES IF EXISTS ('b', 'a\'')"),
        (RelaxColumn(("s", "a b")), "ALTER COLUMN `s`.`a b` DROP NOT NULL"),
        (RenameColumn(("s", "a"), "b`c"), "RENAME COLUMN `s`.`a` TO `b``c`"),
        (DropColumn(("l", "element", "a")), "DROP COLUMN `l`.`element`.`a`"),
        (MoveColumn(("s", "a"), None), "ALTER COLUMN `s`.`a` FIRST"),
        (MoveColumn(("a",), "b c"), "ALTER COLUMN `a` AFTER `b c`"),
        (SetIdentifierFields(("a", "b c")), "SET IDENTIFIER FIELDS `a`, `b c`"),
        (SetIdentifierFields((), ("a",)), "DROP IDENTIFIER FIELDS `a`"),
        (SetSortOrder((), is_partitioned=True), "WRITE DISTRIBUTED BY PARTITION UNORDERED"),
        (CreateBranch("a-b"), "CREATE BRANCH IF NOT EXISTS `a-b`"),
    ],
)
def test_every_change_has_a_statement(change: TableUpdate, clause: str) -> None:
    assert sql.change_table("lake", FLIGHTS, [change]) == [f"ALTER TABLE `lake`.`nyc`.`flights` {clause}"]


def test_adjacent_column_changes_are_one_statement() -> None:
    changes: list[TableUpdate] = [
        AddColumn(("a",), INT, "{one}"),
        AddColumn(("b", "c"), STRING),
        WidenColumn(("d",), INT, parse_type("long")),
        DescribeColumn(("e",), "text"),
        DescribeColumn(("d",), "twice"),
        MoveColumn(("e",), None),
        DropColumn(("f",)),
        DropColumn(("g",)),
    ]
    clauses = [
        "ADD COLUMNS (`a` INT COMMENT '{one}', `b`.`c` STRING)",
        "ALTER COLUMN `d` TYPE BIGINT, `e` COMMENT 'text'",
        "ALTER COLUMN `d` COMMENT 'twice'",
        "ALTER COLUMN `e` FIRST",
        "DROP COLUMNS (`f`, `g`)",
    ]
    expected = [f"ALTER TABLE `lake`.`nyc`.`flights` {clause}" for clause in clauses]
    assert sql.change_table("lake", FLIGHTS, changes) == expected


@pytest.mark.parametrize(
    ("is_partitioned", "distribution"),
    [(True, "DISTRIBUTED BY PARTITION LOCALLY ORDERED BY"), (False, "LOCALLY ORDERED BY")],
)
def test_rows_are_sorted_within_files(is_partitioned: bool, distribution: str) -> None:
    order = SetSortOrder((SortField("a b", "desc", "last"), SortField("c")), is_partitioned)
    [statement] = sql.change_table("lake", FLIGHTS, [order])
    assert statement == f"ALTER TABLE `lake`.`nyc`.`flights` WRITE {distribution} `a b` DESC NULLS LAST, `c` ASC"


def test_the_other_statements_quote_their_names() -> None:
    assert sql.create_namespace("lake", ("a", "b`c")) == "CREATE NAMESPACE IF NOT EXISTS `lake`.`a`.`b``c`"
    assert sql.refresh("lake", FLIGHTS) == "REFRESH TABLE `lake`.`nyc`.`flights`"
    assert sql.probe("my lake") == "SHOW NAMESPACES IN `my lake`"


def test_a_merge_joins_by_every_key() -> None:
    condition = sql.merge_condition(["id", "a b"], target="t", source="s")
    assert condition == "`t`.`id` = `s`.`id` AND `t`.`a b` = `s`.`a b`"


@pytest.mark.parametrize("field", ["day(ts)", "bucket(4, id)", "truncate(3, c)", "year(ts)"])
def test_a_transform_is_written_with_quoted_columns(field: str) -> None:
    (parsed,) = spec(field).fields
    assert sql.transform(parsed).replace("`", "") == field
