"""How far an asset has read, according to its own table's snapshots, and which scan finds the new rows."""

import itertools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from dagster_iceberg_spark.errors import ChangesConsumedError, ConfigurationError
from dagster_iceberg_spark.plan.options.output_options import WriteOptions, parse_write_options
from dagster_iceberg_spark.plan.read.incremental import (
    OutputTable,
    Position,
    common_position,
    furthest,
    options_after_full_read,
    position_of,
    refuse_consumed,
    refuse_loss,
    scan_of,
    snapshots_since,
    to_be_read,
)
from dagster_iceberg_spark.plan.read.read_options import parse_read_options
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.lineage import (
    Materialization,
    ReadKind,
    UpstreamRead,
    has_all_reads,
    upstream_document,
    upstream_reads,
)
from dagster_iceberg_spark.table.partitioning import PartitionSpec
from dagster_iceberg_spark.table.schema import Schema
from dagster_iceberg_spark.table.scope import Dimension, PartitionScope, PartitionSlice, share_of
from dagster_iceberg_spark.table.snapshot import Snapshot, TableState

CHANGES = {"iceberg/read": "changes"}


def table(snapshots: Sequence[Snapshot]) -> TableState:
    return TableState(
        identifier=TableIdentifier(("db",), "own"),
        location="",
        format_version=2,
        schema=Schema(()),
        specs={0: PartitionSpec(())},
        default_spec_id=0,
        properties={},
        snapshots={item.snapshot_id: item for item in snapshots},
        refs={"main": snapshots[-1].snapshot_id} if snapshots else {},
    )


def line(*summaries: Mapping[str, str], first_parent: int | None = None) -> TableState:
    """A linear history of snapshots with the ids 1, 2, 3, ..."""
    parents = [first_parent, *range(1, len(summaries))][: len(summaries)]
    return table(
        [
            Snapshot(number, parent, number, "append", summary)
            for number, (parent, summary) in enumerate(zip(parents, summaries, strict=True), start=1)
        ]
    )


def keys(*names: str) -> PartitionScope:
    if not names:
        return PartitionScope()
    return PartitionScope((Dimension(None, "k"),), tuple((PartitionSlice(name),) for name in names), names)


def read(snapshot_id: int | None, *of: str, **more: Any) -> UpstreamRead:
    scope = keys(*of)
    said = {"kind": "changes", "digest": scope.digest, "input_name": "up", **more}
    return UpstreamRead("up", "db.up", snapshot_id, scope.describe() if of else None, **said)


def after(snapshot_id: int | None = None, until: int | None = None) -> UpstreamRead:
    """The read that continues after a snapshot."""
    return replace(read(until), since=snapshot_id)


def unclear(position: Position) -> str:
    assert isinstance(position, str)
    return position


def wrote(
    *reads: UpstreamRead, keys_of: PartitionScope | None = None, asset: str = "own", token: str = "t"
) -> dict[str, str]:
    scope = keys_of or PartitionScope()
    said = {} if scope.is_whole_table else {"dagster.partition_keys": scope.describe()}
    return {
        "dagster.asset_key": asset,
        "dagster.partition_digest": scope.digest,
        "dagster.upstream": upstream_document(reads),
        "dagster.commit_token": token,
        **said,
    }


def position_after(
    state: TableState | None, *of: str, scope: PartitionScope | None = None, recorded: int = 0
) -> Position:
    own = OutputTable(
        "own",
        "main",
        scope or PartitionScope(),
        state,
        is_pending=lambda item: item.summary.get("dagster.commit_token") == "mine",
        is_recorded=lambda item: item.snapshot_id == recorded,
    )
    return position_of(own, read(None, *of), of)


def test_the_asset_s_newest_snapshot_determines_the_position() -> None:
    assert position_after(None) == after()
    assert position_after(line()) == after()
    assert position_after(line({}, wrote(asset="other"))) == after()
    assert position_after(line(wrote(read(7)), wrote(read(8)), {}, wrote(asset="other"))) == after(8)
    assert position_after(line(wrote(read(7)), wrote())) == after(7)
    assert position_after(line(wrote(read(None)))) == after(None)
    assert position_after(line(wrote(read(7)), wrote(read(None)))) == after(7)


def test_reads_under_the_asset_s_former_key_count() -> None:
    state = line(wrote(read(7), asset="old"), wrote(asset="other"))
    own = OutputTable("own", "main", PartitionScope(), state, lambda _: False, lambda _: False, former="old")
    assert position_of(own, read(None), ()) == after(7)
    assert position_of(replace(own, former=None), read(None), ()) == after()


def test_a_plain_read_counts_as_a_read_of_all_earlier_changes() -> None:
    plain = UpstreamRead("up", "db.up", 7, None)
    assert position_after(line(wrote(plain))) == after(7)
    assert position_after(line(wrote(plain, read(6)))) == after(6)
    elsewhere = UpstreamRead("up", "db.other", 7, None)
    assert position_after(line(wrote(elsewhere))) == after()


@pytest.mark.parametrize(
    ("then", "now", "is_basis"),
    [
        ({}, {}, True),
        ({"columns": ["id"]}, {}, True),
        ({"iceberg/limit": 1}, {}, False),
        ({"iceberg/row_filter": "a > 1"}, {}, False),
        ({"iceberg/row_filter": "a > 1"}, {"iceberg/row_filter": "a > 2"}, False),
        ({"iceberg/row_filter": "a > 1"}, {"iceberg/row_filter": "a > 1"}, True),
        ({}, {"iceberg/row_filter": "a > 1"}, True),
        ({"iceberg/row_filter": "a > 1", "iceberg/limit": 1}, {"iceberg/row_filter": "a > 1"}, False),
        ({"iceberg/row_filter": "a > 1", **CHANGES}, {}, True),  # a filter of changes drops the other rows for good
    ],
)
def test_a_partial_read_is_not_a_starting_point(then: dict[str, Any], now: dict[str, Any], *, is_basis: bool) -> None:
    earlier, asked = (parse_read_options(item, subject="up") for item in (then, {**now, **CHANGES}))
    own = OutputTable(
        "own",
        "main",
        PartitionScope(),
        line(wrote(read(6)), wrote(read(7, kind=earlier.kind, left_out=earlier.left_out))),
        is_pending=lambda _: False,
        is_recorded=lambda _: False,
    )
    found = position_of(own, read(None, left_out=asked.left_out), ())
    if is_basis:
        assert found == replace(after(7), left_out=asked.left_out)
    else:
        assert "has not read all rows of db.up (iceberg/" in unclear(found)


def test_two_inputs_of_one_table_have_separate_positions() -> None:
    assert position_after(line(wrote(read(7), read(9, input_name="another")))) == after(7)
    found = position_after(line(wrote(read(7, input_name="one"), read(9, input_name="another"))))
    assert "more than one state of them" in unclear(found)


def test_a_renamed_table_or_asset_continues_if_the_input_is_the_same() -> None:
    moved = UpstreamRead("up", "db.elsewhere", 7, None, kind="changes", input_name="up")
    assert position_after(line(wrote(moved))) == after(7)
    renamed = UpstreamRead("old", "db.up", 7, None, kind="changes", input_name="up")
    assert position_after(line(wrote(renamed))) == after(7)
    shared = UpstreamRead("another", "db.up", 7, None, kind="changes", input_name="another")
    assert position_after(line(wrote(shared))) == after()


def test_a_retry_reads_the_earlier_attempt_s_range_again() -> None:
    again = position_after(line(wrote(read(7)), wrote(read(9, since=7), token="mine")))
    assert again == after(7, until=9)


def test_an_expired_history_is_unclear_unless_a_newer_snapshot_has_a_position() -> None:
    assert position_after(line(wrote(read(7)), first_parent=99)) == after(7)
    assert "older ones have expired" in unclear(position_after(line(wrote(), first_parent=99)))


def test_inputs_of_changes_are_listed_even_if_there_are_too_many_inputs() -> None:
    many = [UpstreamRead(f"asset_{number}", f"db.table_{number}", number, None) for number in range(100)]
    document = upstream_document([*many, read(7)])
    assert (len(document) < 500, has_all_reads(document)) == (True, False)
    assert [item.snapshot_id for item in upstream_reads(document)] == [7]
    assert position_after(line(wrote(*many, read(7)))) == after(7)
    assert "too many inputs" in unclear(position_after(line(wrote(*many))))


@pytest.mark.parametrize(
    ("earlier", "now", "expected"),
    [
        (["a"], ["a"], 7),
        (["a", "b"], ["a"], 7),
        ([], ["a"], 7),
        (["b"], ["a"], None),
        (["b"], ["a", "b"], "unclear"),
        (["a"], [], "unclear"),
        ([f"{number:03}" for number in range(365)], ["365"], None),
        ([f"{number:03}" for number in range(365)], ["100"], "unclear"),
    ],
)
def test_reads_by_other_partitions_do_not_count(earlier: list[str], now: list[str], expected: Any) -> None:
    answer = position_after(line(wrote(read(7, *earlier))), *now)
    assert ("unclear" if isinstance(answer, str) else answer.since) == expected


@pytest.mark.parametrize(
    ("earlier", "own", "recorded", "expected"),
    [
        (["a"], ["a"], 0, 7),
        (["a", "b"], ["a"], 0, 7),
        (["b"], ["a"], 0, None),
        (["b"], ["a", "b"], 0, "unclear"),
        ([], ["a"], 0, 7),
        ([f"{number:03}" for number in range(365)], ["365"], 0, None),
        ([f"{number:03}" for number in range(365)], ["100"], 0, "unclear"),
        ([f"{number:03}" for number in range(365)], ["100"], 1, 7),
    ],
)
def test_each_partition_of_the_asset_has_its_own_position(
    earlier: list[str], own: list[str], recorded: int, expected: Any
) -> None:
    answer = position_after(line(wrote(read(7), keys_of=keys(*earlier))), scope=keys(*own), recorded=recorded)
    assert ("unclear" if isinstance(answer, str) else answer.since) == expected


def test_outputs_of_one_step_must_agree_on_the_position() -> None:
    now = after()
    assert common_position([], now) == common_position([None], now) == now
    assert common_position([after(7), after(7)], now) == after(7)
    assert "7, 8" in unclear(common_position([after(7), after(8)], now))
    assert "7, nothing" in unclear(common_position([after(7), None], now))
    assert common_position([after(7), "x"], now) == "x"
    assert common_position([after(7), after(7, until=8)], now) == after(7, until=8)
    assert "10, 9" in unclear(common_position([after(10), after(7, until=9)], now))


def test_a_range_of_snapshots_follows_the_ancestors() -> None:
    state = line({}, {}, {})
    assert [item.snapshot_id for item in snapshots_since(state, 1, 3) or ()] == [2, 3]
    assert snapshots_since(state, 3, 3) == ()
    assert snapshots_since(state, 3, 1) is None
    assert snapshots_since(state, 9, 3) is None
    assert snapshots_since(state, 1, None) is None


IDS = itertools.count(1)


def snapshot(operation: str, **summary: str) -> Snapshot:
    return Snapshot(next(IDS), None, 0, operation, {key.replace("_", "-"): value for key, value in summary.items()})


def test_the_scan_is_chosen_by_the_snapshots_in_the_range() -> None:
    clean = {"total_delete_files": "0"}
    append, overwrite = snapshot("append", **clean), snapshot("overwrite", **clean)

    def scan(kind: ReadKind, *snapshots: Snapshot, beside: Snapshot | None = None) -> str:
        return scan_of(kind, snapshots, snapshots if beside is None else (*snapshots, beside))

    assert scan("changes") == scan("changelog") == "nothing"
    assert scan("changelog", append) == "changelog"
    assert scan("changes", append, snapshot("append", total_delete_files="1")) == "appends"
    assert scan("changes", append, overwrite) == "inserts"
    assert scan("changes", overwrite, snapshot("append", total_delete_files="1")) == "files"
    assert scan("changes", snapshot("overwrite")) == "files"
    compaction, retention = snapshot("replace", **clean), snapshot("overwrite", deleted_data_files="1")
    assert scan("changes", append, overwrite, beside=compaction) == "inserts"
    assert scan("changes", append, overwrite, beside=retention) == "files"
    assert scan("changes", append, beside=retention) == "appends"
    assert scan("changes", append, beside=snapshot("append")) == "files", "one that is undone"


def test_what_was_undone_since_is_as_if_it_had_never_been() -> None:
    def undo(of: Snapshot) -> Snapshot:
        made = snapshot("overwrite")
        return replace(made, summary={"dagster.undoes": f"[{of.snapshot_id}]"})

    first, second, retention = (snapshot("append") for _ in range(3))
    retention = replace(retention, summary={"dagster.write_disposition": "retention"})
    undone = undo(second)
    again = undo(undone)
    assert to_be_read([first, second, retention, undone], "changes") == (first,)
    assert to_be_read([first, undone], "changes") == (first, undone), "the rows that it took back were read"
    assert to_be_read([first, second, undone, again], "changes") == (first, second)
    assert to_be_read([first, second, retention, undone], "changelog") == (first, second, retention, undone)


def test_a_description_of_keys_covers_all_some_or_none() -> None:
    assert share_of("a", ["a"]) == "all"
    assert share_of('["a", "b"]', ["a", "c"]) == "some"
    assert share_of('["a", "b"]', ["c"]) == "none"
    assert share_of("a..c (40)", ["b"]) is None
    assert share_of("a..c (40)", ["d"]) == "none"
    assert share_of("what (someone wrote)", ["d"]) == "none"


@pytest.mark.parametrize(("read", "expected"), [([1, 3, 2], 3), ([2], 2), ([9, 3], 9), ([2, 9, 1], 2)])
def test_the_furthest_read_is_the_latest_in_the_history(read: list[int], expected: int) -> None:
    assert furthest(line({}, {}, {}), read) == expected
    assert furthest(None, read) == read[0]


OWN = TableIdentifier(("db",), "own")


def options(disposition: str, merge: Any = None) -> WriteOptions:
    metadata = {"iceberg/write_disposition": disposition, "iceberg/merge_keys": ["id"], "iceberg/merge": merge}
    return parse_write_options(metadata, subject="own")


def written_from(*reads: UpstreamRead) -> Materialization:
    return Materialization("own", "run", "job", "step", PartitionScope(), None, reads, "replace", "token", "0.1")


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (options("replace"), "'replace'"),
        (options("overwrite_partitions"), "'overwrite_partitions'"),
        (options("merge", {"sync": True}), "'merge' (upsert)"),
        (options("merge", "delete_insert"), "'merge' (delete_insert)"),
        (options("merge", {"strategy": "replace_where", "where": "id > 1"}), "'merge' (replace_where)"),
        (options("append"), None),
        (options("merge"), None),
    ],
)
def test_a_write_that_would_replace_the_rows_of_earlier_changes_is_refused(
    asked: WriteOptions, found: str | None
) -> None:
    if found is None:
        refuse_loss(asked, written_from(read(7)), OWN)
        return
    with pytest.raises(ConfigurationError) as caught:
        refuse_loss(asked, written_from(read(7)), OWN)
    expected = "Cannot write db.own: expected an asset that adds to its table what it makes of the changes of up"
    assert f"{expected}, found `iceberg/write_disposition` {found}, which removes what was" in str(caught.value)
    own, whole = (UpstreamRead(name, f"db.{name}", 7, None) for name in ("own", "up"))
    refuse_loss(asked, written_from(read(7), own), OWN)
    refuse_loss(asked, written_from(read(7), whole), OWN)
    refuse_loss(asked, written_from(whole), OWN)


def refusal_of_consumed(state: TableState, *, known: int | None, partitions: PartitionScope) -> str | None:
    """What the message says has read the changes first, or None if the write is not refused."""
    ours = replace(written_from(read(9, output_heads=(("own", known),))), scope=partitions)
    is_pending = partial(operator.eq, state.snapshots.get(3))
    try:
        refuse_consumed(state, ours, options("append"), is_pending=is_pending, subject="db.own")
    except ChangesConsumedError as error:
        return str(error)
    return None


def test_changes_that_another_run_has_read_first_are_not_written_again() -> None:
    state = line(wrote(), wrote(read(8), keys_of=keys("b")), wrote(read(8)), wrote(asset="other"))
    consumed = refusal_of_consumed(state, known=1, partitions=keys("b")) or ""
    assert "found snapshot 2 of the same asset, which has read them too. Hint: run it again" in consumed
    assert refusal_of_consumed(state, known=1, partitions=keys("a")) is None  # other partitions have read them
    assert refusal_of_consumed(state, known=2, partitions=keys("b")) is None  # the only one since is our own attempt
    lost = refusal_of_consumed(line(wrote()), known=7, partitions=keys("b")) or ""
    assert "found a table without the snapshot 7 that it had when they were read" in lost


def test_only_an_append_replaces_what_was_made_of_rows_that_are_read_anew() -> None:
    anew, plain = read(7, is_repeated=True), UpstreamRead("other", "db.other", 3, None)
    replaced = options_after_full_read(options("append"), [anew, plain], subject="own")
    assert replaced == options("append").model_copy(update={"write_disposition": "replace"})
    refuse_loss(replaced, written_from(anew), OWN)
    assert options_after_full_read(options("merge"), [read(7)], subject="own") == options("merge")
    for disposition, rules in (("merge", None), ("merge", {"sync": True})):
        merged = options(disposition, rules)
        assert options_after_full_read(merged, [anew], subject="own") == merged
        refuse_loss(merged, written_from(anew), OWN)
    found = r"all rows of each input, because up .*, found only the changes of other"
    with pytest.raises(ConfigurationError, match=found):
        options_after_full_read(options("append"), [anew, replace(plain, kind="changes")], subject="own")
