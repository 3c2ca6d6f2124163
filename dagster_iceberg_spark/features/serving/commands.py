"""The command `serve`."""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from dagster_iceberg_spark.cli.locations import (
    catalog_options,
    catalog_resource,
    definitions_of,
    location_options,
    usage_errors,
)
from dagster_iceberg_spark.cli.terminal import say
from dagster_iceberg_spark.errors import ConfigurationError

_TOKEN: Final = "DAGSTER_ICEBERG_TOKEN"  # noqa: S105 - the name of a variable
_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@location_options
@catalog_options
@click.option("--host", default="127.0.0.1", show_default=True, help="Address that the server listens at.")
@click.option("--port", type=int, default=8181, show_default=True, help="Port; 0 for a free one.")
@click.option("--cert", type=_FILE, help="Certificate of the server, for TLS.")
@click.option("--key", type=_FILE, help="Private key of the certificate.")
@click.option("--vend", is_flag=True, help="Hand out the credentials for files that the REST catalog hands out.")
@click.option("--keep", type=click.IntRange(min=1), metavar="DAYS", help="Keep what is served, by tags, for days.")
def serve(
    *, host: str, port: int, cert: Path | None, key: Path | None, keep: int | None, vend: bool, **options: Any
) -> None:
    """Serve the tables as of one point to any engine, as a read-only Iceberg REST catalog.

    A client names the point as its warehouse: release/2026-11, env/pr-7, run/<id> or at/2026-11-01T00:00Z. All tables
    that it reads agree, whatever is committed concurrently. It sends the token of the environment variable
    DAGSTER_ICEBERG_TOKEN, or the one that the command prints, and brings its own credentials for the files.

    \b
    Examples:
      dagster-iceberg-spark serve -m my_project.definitions
      dagster-iceberg-spark serve --kind sql --uri sqlite:///lake/catalog.db --warehouse lake --port 8181
    """  # noqa: D301 - click needs the character \b
    # Loading Dagster takes longer than showing the help.
    from contextlib import ExitStack

    from dagster_iceberg_spark.assets.stored_tables import stored_members

    with usage_errors(), catalog_resource(options) as resource, ExitStack() as stack:
        if (cert is None) != (key is None):
            raise click.UsageError("--cert and --key belong together.")
        if resource is not None:
            description = resource.catalog_description
        else:
            locations = definitions_of(**options, others=("--kind",))
            members = [
                member
                for definitions in locations
                for member in stack.enter_context(stored_members(definitions, action="serve"))
            ]
            found = {manager.spark.catalog_description.identity: manager.spark for manager, _ in members}
            if len(found) != 1:
                raise click.UsageError(f"Expected code locations with one catalog, found {len(found)}: use --kind.")
            (spark,) = found.values()
            description = spark.catalog_description
        if vend and not description.is_rest:
            raise click.UsageError(f"--vend needs a REST catalog, found the {description}.")
        _run(description, host, port, cert, key, {"keep_days": keep, "vends": vend})


def _run(
    description: Any, host: str, port: int, cert: Path | None, key: Path | None, serving: Mapping[str, Any]
) -> None:
    try:
        import uvicorn

        from dagster_iceberg_spark.features.serving.rest_server import CatalogServer
    except ImportError as error:
        raise ConfigurationError.missing_package(
            "serve", str(description), package="uvicorn", install="dagster-iceberg-spark[serve]"
        ) from error
    from dagster_iceberg_spark.features.serving.served_tables import ServedTables

    given = os.environ.get(_TOKEN)
    token = given or secrets.token_urlsafe(24)
    app = CatalogServer(ServedTables(description, **serving), token=token).app()
    config = uvicorn.Config(
        app, host=host, port=port, log_level="warning", ssl_certfile=cert, ssl_keyfile=key, lifespan="off"
    )
    server, socket = uvicorn.Server(config), config.bind_socket()
    socket.listen()  # clients that come at once wait
    address = f"{'https' if cert else 'http'}://{host}:{socket.getsockname()[1]}"
    say(f"Serving the {description} at {address}, until Ctrl+C.")
    say(f"The token is that of {_TOKEN}." if given else f"The token is {token}")
    server.run(sockets=[socket])
