"""Who owns a table, and what assets that share a table must not change."""

from typing import Any

import pytest

from dagster_iceberg_spark.errors import ConfigurationError, TableOwnershipError
from dagster_iceberg_spark.plan.options.output_options import parse_write_options
from dagster_iceberg_spark.plan.write.table_owner import (
    check_ownership,
    others_on,
    owner_of,
    refuse_disagreement,
    refuse_replacing_others,
    shared_by,
)
from dagster_iceberg_spark.plan.write.write_request import TableRequest
from dagster_iceberg_spark.table.lineage import (
    NAMED_EXPLICITLY,
    OWNER_PROPERTY,
    SHARED_PROPERTY,
    SHARERS_PROPERTY,
    Materialization,
    UpstreamRead,
)
from dagster_iceberg_spark.table.partitioning import parse_partition_field
from dagster_iceberg_spark.table.scope import PartitionScope
from dagster_iceberg_spark.table.snapshot import TableState
from dagster_iceberg_spark.table.updates import AddPartitionField, DropColumn
from tests.core.table.samples import TABLE, schema, table

COLUMNS = schema(ts="timestamptz", carrier="string")
SHARED = {OWNER_PROPERTY: "nyc/flights", SHARED_PROPERTY: NAMED_EXPLICITLY}
BY_CARRIER = AddPartitionField(parse_partition_field("carrier"))


def asked_by(asset_key: str | None, *, named: bool = False, **options: Any) -> TableRequest:
    metadata = {f"iceberg/{key}": value for key, value in options.items()}
    return TableRequest(TABLE, asset_key, named, parse_write_options(metadata, subject="a"), {})


def owned(**properties: str) -> TableState:
    return table(COLUMNS, properties=properties)


@pytest.mark.parametrize(
    ("asset_key", "named", "properties", "may_write"),
    [
        ("nyc/flights", False, {OWNER_PROPERTY: "nyc/flights"}, True),
        ("nyc/flights", False, {}, True),
        ("eu/flights", False, {OWNER_PROPERTY: "nyc/flights"}, False),
        ("eu/flights", True, {OWNER_PROPERTY: "nyc/flights"}, False),
        ("eu/flights", False, SHARED, False),
        ("eu/flights", True, SHARED, True),
        (None, False, {OWNER_PROPERTY: "nyc/flights"}, False),
    ],
    ids=["its own", "nobody's", "another's", "named by one", "named by the other", "named by both", "an op"],
)
def test_a_table_belongs_to_one_asset_unless_both_name_it(
    asset_key: str | None, named: bool, properties: dict[str, str], may_write: bool
) -> None:
    request = asked_by(asset_key, named=named)
    if may_write:
        check_ownership(request, owned(**properties))
        return
    with pytest.raises(TableOwnershipError, match="found a table of the asset 'nyc/flights'"):
        check_ownership(request, owned(**properties))


def test_the_output_of_an_op_is_told_to_name_another_table() -> None:
    with pytest.raises(TableOwnershipError, match=r"expected a table of no asset, found .* Hint: write another table"):
        check_ownership(asked_by(None), owned(**{OWNER_PROPERTY: "nyc/flights"}))


def test_a_missing_table_has_no_owner() -> None:
    check_ownership(asked_by("eu/flights"), None)


def test_an_asset_takes_over_only_the_table_of_its_former_key() -> None:
    state = owned(**{OWNER_PROPERTY: "nyc/flights"})
    assert owner_of(asked_by("us/flights", takes_over="nyc/flights"), state) == "us/flights"
    with pytest.raises(TableOwnershipError, match="not of 'old/flights'"):
        check_ownership(asked_by("us/flights", takes_over="old/flights"), state)


def test_only_the_owner_changes_the_layout_of_a_shared_table() -> None:
    state = owned(**SHARED, **{SHARERS_PROPERTY: '["eu/flights"]'})
    refuse_disagreement(asked_by("nyc/flights", named=True), state, [BY_CARRIER], [])
    with pytest.raises(TableOwnershipError, match="define the table's layout in its owner, 'nyc/flights'"):
        refuse_disagreement(asked_by("eu/flights", named=True), state, [BY_CARRIER], [])


@pytest.mark.parametrize("asset_key", ["nyc/flights", "eu/flights"])
def test_columns_of_a_shared_table_are_not_dropped(asset_key: str) -> None:
    state = owned(**SHARED, **{SHARERS_PROPERTY: '["eu/flights"]'})
    with pytest.raises(TableOwnershipError, match="neither dropped nor renamed"):
        refuse_disagreement(asked_by(asset_key, named=True), state, [], [DropColumn(("carrier",))])


@pytest.mark.parametrize(
    ("asset_key", "sharers", "recorded"),
    [
        ("eu/flights", "[]", '["eu/flights"]'),
        ("eu/flights", '["eu/flights"]', None),
        ("eu/flights", "no list", '["eu/flights"]'),
        ("nyc/flights", '["nyc/flights", "us/flights"]', '["us/flights"]'),
        (None, "[]", None),
    ],
)
def test_a_table_knows_the_assets_that_share_it(asset_key: str | None, sharers: str, recorded: str | None) -> None:
    state = owned(**SHARED, **{SHARERS_PROPERTY: sharers})
    assert shared_by(asked_by(asset_key, named=True), state).get(SHARERS_PROPERTY) == recorded


@pytest.mark.parametrize(
    ("asset", "former", "sharers", "others"),
    [
        ("nyc/flights", None, "[]", ()),
        ("nyc/flights", None, '["eu/flights", "us/flights"]', ("eu/flights", "us/flights")),
        ("eu/flights", None, '["eu/flights"]', ("nyc/flights",)),
        ("new/flights", "nyc/flights", "[]", ()),
        ("nyc/flights", None, "what another writer has written", ()),
    ],
)
def test_the_other_assets_of_a_table_are_its_owner_and_those_that_share_it(
    asset: str, former: str | None, sharers: str, others: tuple[str, ...]
) -> None:
    assert others_on(owned(**SHARED, **{SHARERS_PROPERTY: sharers}), asset, former) == others


def test_partitions_are_not_replaced_with_the_rows_of_others() -> None:
    """By an asset that appends, and reads an input anew because its changes are unclear."""
    state = owned(**SHARED, **{SHARERS_PROPERTY: '["eu/flights"]'})

    def written(asset: str, *, is_repeated: bool) -> None:
        read = UpstreamRead("up", "db.up", 7, None, kind="changes", is_repeated=is_repeated)
        made = Materialization(asset, "run", "job", "step", PartitionScope(), None, (read,), "replace", "token", "0.1")
        refuse_replacing_others(asked_by(asset, named=True), made, state)

    for asset, other in (("nyc/flights", "eu/flights"), ("eu/flights", "nyc/flights")):
        written(asset, is_repeated=False)
        with pytest.raises(ConfigurationError) as caught:
            written(asset, is_repeated=True)
        expected = "expected a table that no other asset writes, because up is read anew (`iceberg/changes_fallback`)"
        assert f"{expected}, found rows of {other} too. Hint: give each asset" in str(caught.value)
    refuse_replacing_others(
        asked_by("nyc/flights"),
        Materialization("nyc/flights", "run", "job", "step", PartitionScope(), None, (), "append", "token", "0.1"),
        state,
    )
