"""How often an input looks at the tables that its step writes."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from dagster_iceberg_spark.assets import loading
from dagster_iceberg_spark.assets.read_requests import InputAnnotation, ReadRequest
from dagster_iceberg_spark.errors import UpstreamMissingError
from dagster_iceberg_spark.plan.read.read_options import parse_read_options
from dagster_iceberg_spark.table.identifier import TableIdentifier
from dagster_iceberg_spark.table.scope import PartitionScope
from tests.core.table.samples import table


def test_the_tables_of_a_step_are_looked_at_once_for_the_changes_of_an_earlier_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = parse_read_options({"iceberg/read": "changes", "iceberg/as_of_run": "earlier"}, subject="up")
    request = ReadRequest(
        TableIdentifier(("db",), "up"), "up", "up", PartitionScope(), options, InputAnnotation(None), step_key="own"
    )
    look_at_tables = Mock(return_value=[])
    monkeypatch.setattr(loading, "step_outputs", look_at_tables)
    monkeypatch.setattr(loading, "read_position", lambda *_: request.upstream_read)
    monkeypatch.setattr(loading, "recorded_read", lambda *_: None)
    monkeypatch.setattr(loading, "look", lambda *_: table())
    spark: Any = SimpleNamespace(catalog_description=None)
    context: Any = None
    with pytest.raises(UpstreamMissingError, match="a record of what this step read of up in the run earlier"):
        loading.InputLoader(spark, context, request, loading.SPARK_FRAME).load()
    look_at_tables.assert_called_once()
