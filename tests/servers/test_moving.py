"""Tables move to Glue as docs/how-to/move-to-glue.md tells: their files stay, and so does their history."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.lakes import frame_asset, open_lake
from tests.servers.combinations import Asked, glue, sqlite_s3
from tests.test_how_to import function_of

pytestmark = [pytest.mark.server, pytest.mark.spark]


def test_tables_on_s3_move_to_glue(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    name = f"moved_{tmp_path.name.replace('-', '_').lower()}"
    with ExitStack() as stack:
        asked = Asked(request, tmp_path, stack)
        for old in open_lake(sqlite_s3(asked), tmp_path, None):
            run = old.materialize(frame_asset(name, "select 1 as v"))
            for new in open_lake(glue(asked), tmp_path, None):
                register = function_of("move-to-glue.md", "register_tables")
                assert register(old.spark, new.spark, "db") == [f"db.{name}"]
                new.materialize(frame_asset(name, "select 2 as v"))
                first, second = new.table(name).snapshots()
                assert first.summary is not None
                assert first.summary.additional_properties["dagster.run_id"] == run.run_id
                assert second.parent_snapshot_id == first.snapshot_id
                assert new.rows(name, "v") == [2]
