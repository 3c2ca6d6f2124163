"""Names what existing tables have that their readers cannot read."""

from collections.abc import Iterator

import dagster as dg

from dagster_iceberg_spark.assets.address import plain_value
from dagster_iceberg_spark.assets.stored_tables import stored_members
from dagster_iceberg_spark.check.findings import Finding
from dagster_iceberg_spark.errors import IcebergSparkError
from dagster_iceberg_spark.features.readers.options import READERS_KEY, ReaderOptions
from dagster_iceberg_spark.features.readers.plan import unread
from dagster_iceberg_spark.plan.options.metadata_key import read_metadata


def check_readers(definitions: dg.Definitions) -> Iterator[Finding]:
    """Yield a finding for each table with readers. This starts no session, and reads no manifest."""
    from dagster_iceberg_spark.catalog.look import look

    specs = [spec for assets in definitions.resolve_asset_graph().assets_defs for spec in assets.specs]
    if not any(spec.metadata.get(READERS_KEY) for spec in specs):
        return
    with stored_members(definitions, action="check the readers of") as members:
        for io_manager, spec in members:
            value = plain_value(spec.metadata.get(READERS_KEY))
            if not value:
                continue
            subject, setting = spec.key.to_user_string(), f"`{READERS_KEY}` of the asset"
            try:
                readers = read_metadata(ReaderOptions, {READERS_KEY: value}, subject=subject).readers
                state = look(io_manager.spark.catalog_description, io_manager.definition_of(spec).request.identifier)
            except IcebergSparkError as error:
                yield Finding(subject, "readers", "failed", str(error), setting)
                continue
            found = [] if state is None else unread(state, readers)
            if found:
                yield Finding(subject, "readers", "failed", "; ".join(found), setting)
            else:
                yield Finding(subject, "readers", "ok", f"{', '.join(readers)} can read the table")
