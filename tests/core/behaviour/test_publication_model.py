"""Random histories of audited writes, other writers and crashes, against a plain model of what readers see.

The short profile is the same in every run; `make test-long` draws new histories. Set `MODEL_EXAMPLES` and `MODEL_STEPS`
to draw more.
"""

import os
import uuid
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

import dagster as dg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from dagster_iceberg_spark import CommitOutcomeUnknownError, WriteFailedError
from dagster_iceberg_spark.commit import staged_write as publication
from dagster_iceberg_spark.plan.write import adoption
from dagster_iceberg_spark.spark.write import engine
from tests.features.maintenance.maintaining import PATIENT, maintain
from tests.lakes import Lake, error_of, frame_asset, metadata_of, resuming

KEYS = ("a", "b", "c")
PARTITIONS = dg.StaticPartitionsDefinition(list(KEYS))
DISPOSITIONS = ("replace", "append", "merge")
LAYOUTS: tuple[list[str], ...] = (["k"], ["k", "bucket(2, id)"], ["bucket(2, id)"], [])
POINTS = tuple(
    (name, after)
    for name in ("prepare", "write", "evaluate", "publish", "published_snapshot")
    for after in (False, True)
)
OTHERS = ("append", "delete", "compact", "maintain")
Rows = list[tuple[str, int, int]]
"""The values of `k`, `id` and `v`."""

pytestmark = pytest.mark.spark


class PublicationMachine(RuleBasedStateMachine):
    """One table, written by an audited asset and by others. Rows with a negative `v` fail the audit."""

    steps: ClassVar[Counter[str]] = Counter()

    def __init__(self, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.lake = lake
        self.patches = monkeypatch
        self.name = f"t_{uuid.uuid4().hex[:12]}"
        self.rows: Rows = []
        self.published: list[str] = []
        self.exists = False

    @initialize(layout=st.sampled_from(LAYOUTS), version=st.sampled_from([1, 2, 2, 3]), on_read=st.booleans())
    def start(self, *, layout: list[str], version: int, on_read: bool) -> None:
        note(f"{layout}, format {version}")
        modes = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}
        self.metadata = {
            "partition_expr": "k",
            "iceberg/partition_by": layout,
            "iceberg/format_version": version,
            "iceberg/merge_keys": ["id"],
            "iceberg/table_properties": modes if on_read and version > 1 else {},
        }
        self.is_writable_by_pyiceberg = version < 3 and not (on_read and version > 1)

    @rule(
        data=st.data(),
        disposition=st.sampled_from(DISPOSITIONS),
        passes=st.sampled_from([True, True, True, False]),
        meanwhile=st.sampled_from(["nothing", "nothing", "another key", "the same key", *OTHERS]),
    )
    def audited(self, data: st.DataObject, disposition: str, *, passes: bool, meanwhile: str) -> None:
        key, rows = self._drawn(data, disposition, passes=passes)
        if self.exists and meanwhile != "nothing":
            self._once("publish", lambda: self._meanwhile(data, key, meanwhile), before=True)
        result = self._run(key, rows, disposition)
        self.patches.undo()
        self._settle(result, key, rows, disposition, passes=passes)

    @rule(
        data=st.data(),
        disposition=st.sampled_from(DISPOSITIONS),
        passes=st.sampled_from([True, True, False]),
        point=st.sampled_from(POINTS),
        is_unknown=st.booleans(),
        resumes=st.booleans(),
        maintains=st.booleans(),
    )
    def crashed(
        self,
        data: st.DataObject,
        disposition: str,
        *,
        passes: bool,
        point: tuple[str, bool],
        is_unknown: bool,
        resumes: bool,
        maintains: bool,
    ) -> None:
        """A run dies at some point. It has published everything or nothing; then it is resumed, or forgotten."""
        key, rows = self._drawn(data, disposition, passes=passes)
        error = (CommitOutcomeUnknownError if is_unknown else WriteFailedError)("gone")

        def die() -> None:
            raise error

        self._once(point[0], die, before=not point[1])
        result = self._run(key, rows, disposition)
        self.patches.undo()
        self.steps["crashes"] += not result.success
        self.exists = self.exists or bool(self.lake.exists(self.name))
        if result.success or error_of(result).class_name == "AuditFailedError":
            self._settle(result, key, rows, disposition, passes=passes)
            return
        is_published = self._tokens() != self.published
        if is_published:
            self._write(key, rows, disposition)
            self.published = self._tokens()
        self._check()
        if maintains and self.exists:
            self._maintain()
        if resumes:
            again = self._run(key, rows, disposition, tags=resuming(result.run_id))
            if is_published:
                assert again.success, error_of(again)
                if disposition != "append":
                    self._write(key, rows, disposition)
                self.published = self._tokens()
                self._check()
            else:
                self._settle(again, key, rows, disposition, passes=passes)

    @precondition(lambda self: self.exists)
    @rule(data=st.data(), action=st.sampled_from([*OTHERS, "another key"]))
    def others(self, data: st.DataObject, action: str) -> None:
        self._meanwhile(data, "a", action)
        self._check()

    def _drawn(self, data: st.DataObject, disposition: str, *, passes: bool) -> tuple[str, Rows]:
        key = data.draw(st.sampled_from(KEYS))
        ids = data.draw(st.lists(st.integers(0, 5), max_size=4, unique=disposition == "merge"))
        rows = [(key, number, data.draw(st.integers(0, 9))) for number in ids]
        return key, rows if passes else [*rows, (key, 9, -1)]

    def _meanwhile(self, data: st.DataObject, key: str, action: str) -> None:
        """What another writer does to the table."""
        self.steps[f"{action} by others"] += 1
        other = data.draw(st.sampled_from([item for item in KEYS if item != key]))
        match action:
            case "another key" | "the same key":
                written = key if action == "the same key" else other
                rows = [(written, 7, data.draw(st.integers(10, 19)))]
                result = self._run(written, rows, "replace", audits={})
                assert result.success, error_of(result)
                self._write(written, rows, "replace")
            case "append" if self.is_writable_by_pyiceberg:
                table = self.lake.table(self.name)
                columns = {"k": pa.string(), "id": pa.int32(), "v": pa.int32()}
                table.append(pa.table({"k": [other], "id": [8], "v": [20]}, pa.schema(list(columns.items()))))
                self.rows.append((other, 8, 20))
            case "append":
                self.lake.session.sql(f"insert into {self.table} values ('{other}', 8, 20)")
                self.rows.append((other, 8, 20))
            case "delete" if self.is_writable_by_pyiceberg and data.draw(st.booleans()):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # that nothing matches
                    self.lake.table(self.name).delete("id = 7")
                self.rows = [row for row in self.rows if row[1] != 7]
            case "delete":
                self.lake.session.sql(f"delete from {self.table} where id = 7")
                self.rows = [row for row in self.rows if row[1] != 7]
            case "compact":
                options = "options => map('rewrite-all', 'true')"
                self.lake.session.sql(
                    f"call lake.system.rewrite_data_files(table => 'db.{self.name}', {options})"
                ).collect()
            case "maintain":
                self._maintain()
        self.published = self._tokens()

    def _maintain(self) -> None:
        """Maintain the table. A run that is in progress makes it wait."""
        asset = frame_asset(self.name, "select 1", partitions_def=PARTITIONS, metadata=self.metadata)
        found = maintain(self.lake, asset, policy=PATIENT)[self.name]
        self.steps["maintained" if "iceberg/done" in found else "not maintained"] += 1
        self.published = self._tokens()

    @property
    def table(self) -> str:
        return f"lake.db.{self.name}"

    def _once(self, name: str, action: Callable[[], None], *, before: bool) -> None:
        module = publication if hasattr(publication, name) else engine
        call, left = getattr(module, name), [action]

        def called(*args: Any, **kwargs: Any) -> Any:
            if before and left:
                left.pop()()
            result = call(*args, **kwargs)
            if left:
                left.pop()()
            return result

        self.patches.setattr(module, name, called)

    def _run(
        self,
        key: str,
        rows: Rows,
        disposition: str,
        *,
        audits: dict[str, Any] | None = None,
        tags: dict[str, str] | None = None,
    ) -> dg.ExecuteInProcessResult:
        values = ", ".join(f"('{k}', {number}, {value})" for k, number, value in rows) or "('', 0, 0)"
        query = f"select * from values {values} as t(k, id, v)" + ("" if rows else " where false")
        checked = {"plausible": "v >= 0", "total": "sum(v) > -1"} if audits is None else audits
        metadata = {**self.metadata, "iceberg/write_disposition": disposition, "iceberg/audits": checked}
        asset = frame_asset(self.name, query, partitions_def=PARTITIONS, metadata=metadata)
        return self.lake.materialize(asset, partition_key=key, raise_on_error=False, tags=tags)

    def _settle(
        self, result: dg.ExecuteInProcessResult, key: str, rows: Rows, disposition: str, *, passes: bool
    ) -> None:
        self.exists = self.exists or bool(self.lake.exists(self.name))
        if passes:
            assert result.success, error_of(result)
            self._write(key, rows, disposition)
            reported = metadata_of(result, self.name)
            self.steps[reported["iceberg/publication"] or "adopted"] += 1
            head = self.lake.head(self.name)
            assert reported["iceberg/snapshot_id"] == str(head.snapshot_id)
        else:
            assert not result.success
            assert error_of(result).class_name == "AuditFailedError", error_of(result)
            self.steps["refused"] += 1
        self.published = self._tokens()
        self._check()

    def _write(self, key: str, rows: Rows, disposition: str) -> None:
        match disposition:
            case "append":
                self.rows += rows
            case "merge":
                ids = {number for _, number, _ in rows}
                kept = [row for row in self.rows if row[0] != key or row[1] not in ids]
                twins = Counter(row[1] for row in self.rows if row[0] == key and row[1] in ids)
                self.rows = kept + [row for row in rows for _ in range(max(1, twins[row[1]]))]
            case _:
                self.rows = [row for row in self.rows if row[0] != key] + rows

    def _tokens(self) -> list[str]:
        """The tokens of the snapshots of `main`, oldest first."""
        if not self.lake.exists(self.name):
            return []
        table = self.lake.table(self.name)
        found = [table.snapshot_by_id(entry.snapshot_id) for entry in table.history()]
        summaries = [item.summary.additional_properties for item in found if item is not None and item.summary]
        return [token for summary in summaries if (token := summary.get("dagster.commit_token")) is not None]

    def _check(self) -> None:
        """Readers see the rows of the model, and each materialization is one snapshot of `main`."""
        if not self.exists:
            return
        seen = sorted((row.k, row.id, row.v) for row in self.lake.session.table(self.table).collect())
        assert seen == sorted(self.rows)
        assert len(self.published) == len(set(self.published)), "a token is in the history twice"
        assert all(value >= 0 for _, _, value in seen), "rows that fail the audit are seen"


def run(lake: Lake, *, examples: int, steps: int, is_repeatable: bool) -> None:
    """Run the machine."""
    PublicationMachine.steps.clear()
    with pytest.MonkeyPatch.context() as lasting, pytest.MonkeyPatch.context() as patches:
        # Maintenance here expires snapshots that are younger than clocks may differ.
        lasting.setattr(adoption, "CLOCK_TOLERANCE_MS", 0)
        run_state_machine_as_test(
            lambda: PublicationMachine(lake, patches),  # type: ignore[arg-type] # any callable that makes one
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
    print(f"{dict(PublicationMachine.steps)}")  # noqa: T201 - for who asked for more


@pytest.mark.full
def test_readers_see_what_is_published_and_nothing_else(kept_lake: Lake) -> None:
    run(kept_lake, examples=2, steps=9, is_repeatable=True)


@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
def test_readers_see_what_is_published_in_long_histories(kept_lake: Lake) -> None:
    run(kept_lake, examples=8, steps=30, is_repeatable=False)
