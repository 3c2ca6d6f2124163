"""What a write to a branch must not change in `main`."""

from dataclasses import replace
from typing import Any

import pytest

from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.plan.options.output_options import WriteOptions, parse_write_options
from dagster_iceberg_spark.plan.publication.branch import (
    Environment,
    new_branch,
    refuse_losses_of_main,
    refuse_outdated_branch,
)
from dagster_iceberg_spark.plan.write.write_request import Staging, TableRequest
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.schema import STRING, Field, Schema
from dagster_iceberg_spark.table.snapshot import TableState
from dagster_iceberg_spark.table.updates import AddColumn, CreateBranch, DropColumn, MoveColumn
from tests.core.table.samples import chain, snapshot, table

NOW = Schema((Field("a", STRING, field_id=1), Field("new", STRING, field_id=2), Field("b", STRING, field_id=3)), 1)
BEFORE = Schema((Field("a", STRING, field_id=1), Field("old", STRING, field_id=2)), 0)


def options(branch: str = "audit", **more: Any) -> WriteOptions:
    metadata = {"iceberg/branch": branch, **{f"iceberg/{key}": value for key, value in more.items()}}
    return parse_write_options(metadata, subject="t")


def state(branch_schema: int = 0) -> TableState:
    heads = ((1, branch_schema), (2, 1))
    snapshots = chain(*(replace(snapshot(number), schema_id=schema_id) for number, schema_id in heads))
    return table(
        NOW, snapshots=snapshots, refs={"main": 2, "audit": 1}, schemas={0: BEFORE, 1: NOW}, branches=["main", "audit"]
    )


def test_a_missing_branch_is_created() -> None:
    for branch, given, created in (("new", state(), True), ("audit", None, True), ("audit", state(), False)):
        assert new_branch(request(branch), given) == ((CreateBranch(branch),) if created else ())
    assert new_branch(request("main"), None) == ()
    own = replace(request("env_pr"), target=Environment("pr", retention_days=3).target)
    assert new_branch(own, state()) == (CreateBranch("env_pr", retention_days=3, keeps_snapshots=True),)


def test_a_branch_write_cannot_drop_or_rename_a_column_of_main() -> None:
    drop = DropColumn(("a",))
    with pytest.raises(ConfigurationError, match="the branch 'audit', found that it would drop column a"):
        refuse_losses_of_main(options(), state(), [drop], subject="t")
    with pytest.raises(ConfigurationError, match="found that it would rename column b to c"):
        refuse_losses_of_main(options(renames={"b": "c"}), state(), [], subject="t")
    refuse_losses_of_main(options("main", renames={"b": "c"}), state(), [drop], subject="t")
    refuse_losses_of_main(
        options(renames={"gone": "a"}), state(), [AddColumn(("x",), STRING), MoveColumn(("a",), None)], subject="t"
    )


def test_a_column_is_not_dropped_before_the_release() -> None:
    with pytest.raises(ConfigurationError) as caught:
        refuse_losses_of_main(options("main", publish="release"), state(), [DropColumn(("a",))], subject="t")
    assert "until a release publishes its rows, found that it would drop column a. Hint: materialize" in str(
        caught.value
    )
    assert "once with `iceberg/publish`: `step`" in str(caught.value)


def request(branch: str = "audit", staging: Staging | None = None) -> TableRequest:
    return TableRequest(
        TableIdentifier(("db",), "t"),
        asset_key="t",
        is_named_explicitly=False,
        options=options(branch),
        staging=staging,
    )


@pytest.mark.parametrize(("column", "found"), [("new", "was renamed"), ("b", "was added")])
def test_an_outdated_branch_cannot_be_filtered_by_a_newer_column(column: str, found: str) -> None:
    with pytest.raises(
        ConfigurationError, match=f"has the column '{column}', found one from before the column {found}"
    ):
        refuse_outdated_branch(request(), state(), ["a", column], subject="t")
    refuse_outdated_branch(request(), state(), ["a"], subject="t")
    refuse_outdated_branch(request(), state(branch_schema=1), ["a", column], subject="t")
    refuse_outdated_branch(request("main"), state(), [column], subject="t")
    refuse_outdated_branch(request("later"), state(), [column], subject="t")
    refuse_outdated_branch(request(), None, [column], subject="t")


def test_a_staged_write_cannot_be_filtered_by_a_column_newer_than_its_start() -> None:
    staged = request("main", Staging("staged", "main"))
    started = replace(state(), refs={"main": 2, "staged": 1})
    with pytest.raises(ConfigurationError, match="materialize the asset once without `iceberg/audits`"):
        refuse_outdated_branch(staged, started, ["new"], subject="t")
