"""Random histories of releases, undos, crashes and other writers over two tables, against a plain model.

The rows of `b` are those of `a` with twice the value, so the sums of the two tables must agree in everything that
anybody can see at one instant. The short profile is the same in every run; `make test-long` draws new histories. Set
`MODEL_EXAMPLES` and `MODEL_STEPS` to draw more.

docs/releases.md: One instant
"""

import os
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar, NamedTuple

import dagster as dg
import polars as pl
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pyiceberg.table import StaticTable
from sqlalchemy import text

from dagster_iceberg_spark import (
    CatalogUnavailableError,
    CommitConflictError,
    ConfigurationError,
    UpstreamMissingError,
    WriteFailedError,
    build_release,
)
from dagster_iceberg_spark.catalog import transaction
from dagster_iceberg_spark.features.releases import undo as undos
from dagster_iceberg_spark.features.releases.undo import undo_run
from tests.features.maintenance.maintaining import PATIENT, maintain
from tests.lakes import Lake, error_of, frame_asset, resuming

KEYS = ("a", "b", "c")
PARTITIONS = dg.StaticPartitionsDefinition(list(KEYS))
LAYOUTS: tuple[list[str], ...] = (["k"], ["k", "bucket(2, id)"])
FOREIGN = ("foreign", "delete")
STAGED = {"partition_expr": "k", "iceberg/publish": "release"}
Rows = tuple[int, ...]
"""The values of the rows of a key, sorted. Those of value 0 are another writer's, in one of the tables."""

pytestmark = pytest.mark.spark


class Entry(NamedTuple):
    """What was published: by whom, of which key, and its values and another writer's rows before and after."""

    by: str
    key: str
    before: tuple[Rows, int]
    after: tuple[Rows, int]


class ReleaseMachine(RuleBasedStateMachine):
    """Two tables, each with a line of who has committed to `main`, oldest first."""

    steps: ClassVar[Counter[str]] = Counter()

    def __init__(self, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.lake, self.patches = lake, monkeypatch
        self.prefix = f"m{uuid.uuid4().hex[:8]}"
        self.values: dict[str, Rows] = dict.fromkeys(KEYS, ())
        self.foreign: Counter[str] = Counter()
        self.entries: dict[str, Entry] = {}
        self.keys: dict[str, str] = {}
        self.undoes: dict[str, str] = {}
        self.lines: dict[str, list[str]] = {"a": [], "b": []}

    @initialize(layout=st.sampled_from(LAYOUTS), version=st.sampled_from([1, 2, 3]))
    def start(self, *, layout: list[str], version: int) -> None:
        modes = {"write.delete.mode": "merge-on-read"} if version > 1 else {}
        self.metadata = {
            **STAGED,
            "iceberg/partition_by": layout,
            "iceberg/format_version": version,
            "iceberg/table_properties": modes,
        }
        self.exists = self.is_maintained = False

    @invariant()
    def counted(self) -> None:
        """Count the steps."""
        self.steps["steps"] += 1

    @rule(
        key=st.sampled_from(KEYS),
        values=st.lists(st.integers(1, 9), max_size=3),
        meanwhile=st.sampled_from(["nothing", "nothing", "another key", "the same key", *FOREIGN, "compact"]),
        other=st.sampled_from(KEYS),
    )
    def released(self, key: str, values: list[int], meanwhile: str, other: str) -> None:
        """A run stages both tables and releases them, while somebody else commits."""
        touched = key if meanwhile == "the same key" else other if meanwhile in ("another key", *FOREIGN) else None
        if meanwhile == "another key" and other == key:
            meanwhile, touched = "the same key", key
        is_compacted = meanwhile == "compact" and self.exists
        if self.exists and meanwhile != "nothing":
            self._once("publish_release", lambda: self._meanwhile(meanwhile, key, other), before=True)
        else:
            touched = None
        result = self._run(key, values)
        self.patches.undo()
        if result.success:
            assert touched != key or meanwhile == "nothing", "rows of another writer were replaced unseen"
            self._publish(result.run_id, key, tuple(sorted(values)))
        else:
            error = error_of(result)
            assert error.class_name in ("CommitConflictError", *(["OvertakenError"] if is_compacted else [])), error
            assert touched == key or is_compacted, error
            self.steps["conflicts"] += 1
        self._check()

    @rule(
        key=st.sampled_from(KEYS),
        values=st.lists(st.integers(1, 9), max_size=3),
        after=st.booleans(),
        resumes=st.booleans(),
        name=st.sampled_from(["publish_release", "commit_tables"]),
    )
    def crashed(self, key: str, values: list[int], *, after: bool, resumes: bool, name: str) -> None:
        """A release dies before or after its commit. It is resumed, or forgotten."""

        def die() -> None:
            raise WriteFailedError("gone") if name == "publish_release" else CatalogUnavailableError("gone")

        self._once(name, die, before=not after)
        result = self._run(key, values)
        self.patches.undo()
        assert not result.success
        self.steps["crashes"] += 1
        if after:
            self._publish(result.run_id, key, tuple(sorted(values)))
        self._check()
        if resumes:
            again = self._run(key, values, tags=resuming(result.run_id), selection=[f"{self.prefix}_release"])
            assert again.success, error_of(again)
            if not after:
                self._publish(result.run_id, key, tuple(sorted(values)))
            self._check()

    @precondition(lambda self: self.entries)
    @rule(pick=st.integers(0, 99), dies=st.sampled_from(["no", "no", "before", "after"]))
    def undone(self, pick: int, dies: str) -> None:
        """A run or an undo is undone, unless a later one has written its key."""
        entry = [*self.entries.values()][pick % len(self.entries)]
        later = [by for line in self.lines.values() for by in line[line.index(entry.by) + 1 :]]
        left = [by for by in later if by not in self._without_effect()]
        is_free = entry.key not in map(self.keys.get, left) and entry.after[1] == self.foreign[entry.key]
        if dies != "no":
            self._once("undo commit", self._die, before=dies == "before")
        try:
            by = undo_run(self._definitions(), entry.by, report=lambda _: None).by
        except CommitConflictError:
            assert not is_free or "compact" in self.lines["a"]
            self.steps["refused undos"] += 1
        except UpstreamMissingError:
            assert entry.by in self._without_effect() or self.is_maintained, "the snapshot before it has expired"
            self.steps["refused undos"] += 1
        except ConfigurationError:  # compaction has rewritten the files
            assert "compact" in self.lines["a"]
            self.steps["refused undos"] += 1
        except CatalogUnavailableError:
            self.steps["crashed undos"] += 1
            if dies == "after":
                self._undo(entry, "")
        else:
            assert is_free
            self._undo(entry, by)
        finally:
            self.patches.undo()
        self._check()

    @precondition(lambda self: self.exists)
    @rule(key=st.sampled_from(KEYS), action=st.sampled_from([*FOREIGN, "compact", "maintain"]))
    def others(self, key: str, action: str) -> None:
        self._meanwhile(action, key, key)
        self._check()

    def _undo(self, entry: Entry, by: str) -> None:
        """Go back to the rows before the entry, by a snapshot of each table."""
        own = by or f"unknown {len(self.lines['b'])}"
        for line in self.lines.values():
            line.append(own)
        (self.values[entry.key], self.foreign[entry.key]) = entry.before
        self.keys[own] = entry.key
        self.undoes[own] = entry.by
        self.steps["undos"] += 1
        if by:
            self.entries[by] = Entry(by, entry.key, entry.after, entry.before)

    def _without_effect(self) -> set[str]:
        """Return what is undone in the lines, and what has undone it. An undo that is undone has no effect."""
        found = set[str]()
        for by in reversed(self.lines["a"]):
            if by in self.undoes and by not in found:
                found |= {by, self.undoes[by]}
        return found

    def _die(self) -> None:
        raise CatalogUnavailableError("gone")

    def _publish(self, run: str, key: str, values: Rows) -> None:
        self.exists = True
        self._apply(Entry(run, key, (self.values[key], self.foreign[key]), (values, 0)))
        self.steps["released"] += 1

    def _apply(self, entry: Entry) -> None:
        self.entries[entry.by] = entry
        self.keys[entry.by] = entry.key
        for line in self.lines.values():
            line.append(entry.by)
        (self.values[entry.key], self.foreign[entry.key]) = entry.after

    def _meanwhile(self, action: str, key: str, other: str) -> None:
        self.steps[f"{action} by others"] += 1
        match action:
            case "another key" | "the same key":
                written = key if action == "the same key" else other
                result = self._run(written, [5])
                assert result.success, error_of(result)
                self._publish(result.run_id, written, (5,))
            case "foreign":
                self.lake.session.sql(f"insert into lake.db.{self.prefix}_a values ('{other}', 0, 0)")
                self.foreign[other] += 1
                self.lines["a"].append("foreign")
            case "delete":
                self.lake.session.sql(f"insert into lake.db.{self.prefix}_a values ('{other}', 0, 0)")
                self.lake.session.sql(f"delete from lake.db.{self.prefix}_a where k = '{other}' and id = 0")
                self.foreign[other] += 1
                self.lines["a"].append("foreign")
            case "compact":
                options = "options => map('rewrite-all', 'true')"
                self.lake.session.sql(
                    f"call lake.system.rewrite_data_files(table => 'db.{self.prefix}_a', {options})"
                ).collect()
                self.lines["a"].append("compact")
            case "maintain":
                self.is_maintained = True
                heads = self._heads()
                maintain(self.lake, *self._assets("select 1")[:2], policy=PATIENT)
                for name, head in self._heads().items():
                    self.lines[name] += ["compact"] if head != heads[name] else []

    def _heads(self) -> dict[str, int]:
        return {name: self.lake.head(f"{self.prefix}_{name}").snapshot_id for name in self.lines}

    def _once(self, name: str, action: Callable[[], None], *, before: bool) -> None:
        """Run something once, before or after a call."""
        from dagster_iceberg_spark.features.releases import release_step as step

        module, attribute = {
            "publish_release": (step, "publish"),
            "commit_tables": (transaction, "commit_tables"),
            "undo commit": (undos, "commit_in_order"),
        }[name]
        call, left = getattr(module, attribute), [action]

        def called(*args: Any, **kwargs: Any) -> Any:
            if before and left:
                left.pop()()
            result = call(*args, **kwargs)
            if left:
                left.pop()()
            return result

        self.patches.setattr(module, attribute, called)

    def _assets(self, query: str) -> list[Any]:
        source = f"{self.prefix}_a"
        first = frame_asset(source, query, partitions_def=PARTITIONS, metadata=self.metadata)

        @dg.asset(
            name=f"{self.prefix}_b",
            io_manager_key="iceberg",
            partitions_def=PARTITIONS,
            metadata=self.metadata,
            ins={"rows": dg.AssetIn(source)},
        )
        def second(rows: pl.DataFrame) -> pl.DataFrame:
            return rows.filter(pl.col("v") > 0).with_columns(v=pl.col("v") * 2)

        return [first, second, build_release(f"{self.prefix}_release", [first, second])]

    def _definitions(self) -> dg.Definitions:
        return dg.Definitions(self._assets("select 1")[:2], resources=self.lake.resources)

    def _run(self, key: str, values: list[int], **options: Any) -> dg.ExecuteInProcessResult:
        rows = ", ".join(f"('{key}', {number}, {value})" for number, value in enumerate(values, 1)) or "('', 0, 0)"
        query = f"select * from values {rows} as t(k, id, v)" + ("" if values else " where false")
        return self.lake.materialize(*self._assets(query), partition_key=key, raise_on_error=False, **options)

    def _check(self) -> None:
        """Everybody sees the rows of the model, and the sums of both tables agree."""
        seen = self._seen()
        for key in KEYS:
            first, second = seen.get(f"{self.prefix}_a", {}).get(key, ()), seen.get(f"{self.prefix}_b", {}).get(key, ())
            assert sum(first) * 2 == sum(second), "a torn read"
            assert tuple(value for value in first if value) == self.values[key]
            assert tuple(value // 2 for value in second) == self.values[key]

    def _seen(self) -> dict[str, dict[str, Rows]]:
        """Return the values by table and key, from one query for the pointers of both tables."""
        catalog: Any = self.lake.spark.pyiceberg_catalog
        query = text("select table_name, metadata_location from iceberg_tables where table_name like :name")
        with catalog.engine.connect() as connection:
            pointers = dict(connection.execute(query, {"name": f"{self.prefix}%"}).fetchall())
        found: dict[str, dict[str, Rows]] = {}
        for name, location in pointers.items():
            table, rows = StaticTable.from_metadata(location), dict[str, list[int]]()
            with suppress(ValueError):  # `main` has no snapshot yet
                for row in table.scan().to_arrow().to_pylist() if table.current_snapshot() else ():
                    rows.setdefault(row["k"], []).append(row["v"])
            found[name] = {key: tuple(sorted(values)) for key, values in rows.items()}
        return found


def run(lake: Lake, *, examples: int, steps: int, is_repeatable: bool) -> None:
    """Run the machine."""
    ReleaseMachine.steps.clear()
    with pytest.MonkeyPatch.context() as patches:
        run_state_machine_as_test(
            lambda: ReleaseMachine(lake, patches),  # type: ignore[arg-type] # any callable that makes one
            settings=settings(
                max_examples=int(os.environ.get("MODEL_EXAMPLES", examples)),
                stateful_step_count=int(os.environ.get("MODEL_STEPS", steps)),
                deadline=None,
                derandomize=is_repeatable,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )
    print(f"{dict(ReleaseMachine.steps)}")  # noqa: T201 - for who asked for more


@pytest.mark.parametrize(("examples", "steps"), [(1, 8), pytest.param(2, 10, marks=pytest.mark.full)])
def test_readers_see_all_tables_of_a_release_or_none(kept_lake: Lake, examples: int, steps: int) -> None:
    run(kept_lake, examples=examples, steps=steps, is_repeatable=True)


@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
def test_readers_see_all_tables_of_a_release_or_none_in_long_histories(kept_lake: Lake) -> None:
    run(kept_lake, examples=8, steps=30, is_repeatable=False)
