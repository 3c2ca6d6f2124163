"""Jobs with what other features and the core do around a write.

docs/pipes.md: The asset; The snapshot decides; After a crash
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_iceberg_spark import DuckLakeMirror, build_release
from tests.core.arrow.writing import ArrowLake, metadata_of
from tests.features.pipes.test_deaths import Story
from tests.features.pipes.test_pipes import commits, job_asset, materialize, resources
from tests.features.pipes.test_reattachment import SECONDS, location, run_of, runs, started, wait_until
from tests.test_docs import CHECKOUT

pytestmark = pytest.mark.full


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[ArrowLake]:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        yield ArrowLake(tmp_path, instance)


@pytest.mark.parametrize("disposition", ["append", "replace"])
def test_a_release_publishes_what_a_job_has_staged(lake: ArrowLake, disposition: str) -> None:
    metadata = {"iceberg/publish": "release", "iceberg/write_disposition": disposition}
    asset = job_asset("write", metadata=metadata)
    result = materialize(lake, asset, build_release("released", [asset]))
    assert (lake.rows("v"), list(lake.table().metadata.refs)) == ([1, 2, 3], ["main"])
    assert "iceberg/staged_branch" in metadata_of(result)


@pytest.mark.parametrize("disposition", ["append", "replace"])
def test_an_environment_has_the_rows_of_its_jobs(lake: ArrowLake, disposition: str) -> None:
    lake.options["environment"] = "dev"
    materialize(lake, job_asset("write", metadata={"iceberg/write_disposition": disposition}))
    table = lake.table()
    assert table.metadata.refs["env_dev"].max_ref_age_ms is not None
    assert sorted(table.scan().use_ref("env_dev").to_arrow()["v"].to_pylist()) == [1, 2, 3]
    assert table.current_snapshot() is None or lake.rows("v") == []


def test_a_mirror_follows_the_commits_of_jobs(lake: ArrowLake) -> None:
    lake.options["mirror"] = DuckLakeMirror(catalog=f"sqlite:///{lake.directory}/mirror.ducklake", mode="register")
    assert metadata_of(materialize(lake, job_asset("write")))["iceberg/mirror_state"]["state"] == "current"


class Lost(dg.PipesMessageReader):
    """A channel that delivers nothing."""

    @contextmanager
    def read_messages(self, handler: Any) -> Iterator[Any]:
        yield {"path": "/dev/null"}

    def no_messages_debug_text(self) -> str:
        return "the channel is lost"


def test_a_job_whose_messages_are_lost_has_succeeded(lake: ArrowLake) -> None:
    client = dg.PipesSubprocessClient(cwd=str(CHECKOUT), message_reader=Lost())
    metadata = {"iceberg/audits": {"positive": "v > 0"}}
    given = {**resources(lake), "client": client}
    assert dg.materialize([job_asset("write", metadata=metadata)], resources=given, instance=lake.instance).success
    assert (lake.rows("v"), commits(lake)) == ([1, 2, 3], 1)


@pytest.mark.parametrize("disposition", ["append", "replace"])
def test_a_job_that_ends_after_the_run_that_was_started_for_it_adopts(lake: ArrowLake, disposition: str) -> None:
    """The job of a dead run goes on. A second run launches another job, and succeeds before the first job writes."""
    given = {"WITHOUT_HANDLES": "yes", "DISPOSITION": disposition}
    with location(lake.directory, **given) as first:
        [(late, _)] = started(lake.directory)
        first.kill()
        first.wait()
    with location(lake.directory, **given, PARENT=run_of(lake)) as second:
        [other] = [pid for pid, _ in started(lake.directory, 2) if pid != late]
        (lake.directory / f"go-{other}").touch()
        assert second.wait(SECONDS) == 0
    assert runs(late)
    (lake.directory / "go").touch()
    wait_until(lambda: not runs(late))
    Story(lake, disposition).require_once()
