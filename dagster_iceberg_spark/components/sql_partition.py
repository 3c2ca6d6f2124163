"""The values of a run's partitions, as they stand in a query."""

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from dagster_iceberg_spark.errors import PartitioningError
from dagster_iceberg_spark.table.literal import text_literal


@dataclass(frozen=True)
class SqlPartition:
    """The partitions of a run. In a template, `{{ partition.start }}` is a literal of SQL."""

    context: dg.AssetExecutionContext
    path: Path

    @classmethod
    def of(cls, context: dg.AssetExecutionContext, path: Path) -> "SqlPartition":
        """Return the partitions of a run. `path` is the file of the query."""
        return cls(context, path)

    @property
    def start(self) -> str:
        """The beginning of the time window, as a TIMESTAMP."""
        return _timestamp(self._window.start)

    @property
    def end(self) -> str:
        """The end of the time window, which is not part of it, as a TIMESTAMP."""
        return _timestamp(self._window.end)

    @property
    def key(self) -> str:
        """The only partition key, as a text."""
        keys = self._keys
        if len(keys) != 1:
            raise self._refusal("one partition, for `partition.key`", f"{len(keys)}: use `partition.keys`")
        return text_literal(keys[0])

    @property
    def keys(self) -> str:
        """All partition keys, as a list for `IN`."""
        return f"({', '.join(map(text_literal, self._keys))})"

    @property
    def _keys(self) -> list[str]:
        if not self.context.has_partition_key and not self.context.has_partition_key_range:
            raise self._refusal("an asset with partitions, for `partition`", "none: set `partitions_def`")
        return list(self.context.partition_keys)

    @property
    def _window(self) -> dg.TimeWindow:
        definition = self.context.assets_def.partitions_def
        if not isinstance(definition, dg.TimeWindowPartitionsDefinition):
            raise self._refusal("partitions by time, for `partition.start` and `partition.end`", "other partitions")
        windows = [definition.time_window_for_partition_key(key) for key in self._keys]
        return dg.TimeWindow(min(item.start for item in windows), max(item.end for item in windows))

    def _refusal(self, expected: str, found: str) -> PartitioningError:
        return PartitioningError.refusing("run", str(self.path), expected=expected, found=found)


def _timestamp(instant: dt.datetime) -> str:
    return f"TIMESTAMP '{instant.astimezone(dt.timezone.utc).isoformat()}'"
