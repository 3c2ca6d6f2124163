"""What protects the files of other tables from the maintenance of one.

docs/maintenance.md: Files that belong to no snapshot
"""

from dataclasses import replace

import pytest

from dagster_iceberg_spark.features.maintenance.plan.actions import orphan_obstacle
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.snapshot import TableState
from tests.core.table.samples import table

OWN = replace(table(), location="s3://lake/db/t")


def other(location: str = "s3://lake/db/other", **properties: str) -> TableState:
    made = table(properties={key.replace("_", "."): value for key, value in properties.items()})
    return replace(made, identifier=TableIdentifier(("db",), "other"), location=location)


@pytest.mark.parametrize(
    ("neighbour", "found"),
    [
        (other(), None),
        (other("s3://lake/db/t2"), None),
        (other("s3://lake/db"), None),
        (other("s3a://lake/db/t/inside"), "the table db.other is inside of its location"),
        (other("s3://lake/db/t"), "the table db.other is inside of its location"),
        (other(write_data_path="s3://lake/db/t/data"), "the table db.other has files inside of its location"),
        (other(write_metadata_path="s3://lake/db/t/m/"), "the table db.other has files inside of its location"),
        (other(**{"write.object-storage.path": "s3://lake/db/t/o"}), "the table db.other has files inside of its"),
        (other(write_data_path="s3://elsewhere/db/t"), None),
    ],
)
def test_no_orphan_is_removed_where_another_table_may_write(neighbour: TableState, found: str | None) -> None:
    obstacle = orphan_obstacle(OWN, [OWN, neighbour], [])
    assert obstacle is None if found is None else (obstacle or "").startswith(found)


def test_no_orphan_is_removed_where_somebody_forbids_it_or_nobody_knows() -> None:
    kept = replace(OWN, properties={"gc.enabled": "FALSE"})
    assert orphan_obstacle(kept, [], []) == "the table has `gc.enabled` = `false`"
    assert orphan_obstacle(OWN, [], ["db.a", "db.b"]) == "where the files of db.a, db.b are cannot be determined"
