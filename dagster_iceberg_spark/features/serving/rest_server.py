"""The endpoints of the Iceberg REST protocol (OpenAPI description of Iceberg 1.12) that read."""

import secrets
from collections.abc import Callable
from typing import Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dagster_iceberg_spark.errors import (
    CatalogUnavailableError,
    CommitConflictError,
    IcebergSparkError,
    UpstreamMissingError,
)
from dagster_iceberg_spark.features.serving.plan import POINT_KINDS, Point
from dagster_iceberg_spark.features.serving.served_tables import Resolution, ServedTables
from dagster_iceberg_spark.table.identifier import NotationError, TableIdentifier

_SEPARATOR: Final = "\x1f"
"""Stands between the parts of a namespace in a path."""
_NAMES: Final = {
    400: "BadRequestException",
    401: "NotAuthorizedException",
    404: "NotFoundException",
    405: "UnsupportedOperationException",
    503: "ServiceUnavailableException",
}
_WRITES: Final = "This catalog is read-only, because it shows tables as of one point. Write through the catalog itself."
_ENDPOINTS: Final = (
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "GET /v1/{prefix}/namespaces/{namespace}/views",
)


def _error(status: int, message: str, kind: str | None = None) -> JSONResponse:
    error = {"message": message, "type": kind or _NAMES.get(status, "RESTException"), "code": status}
    return JSONResponse({"error": error}, status)


class CatalogServer:
    """Answers the requests of clients about the tables of a catalog as of points."""

    def __init__(self, tables: ServedTables, *, token: str) -> None:
        self._tables = tables
        self._token = token

    def app(self) -> Starlette:
        """Return the application."""
        own = [
            ("/v1/config", self._config),
            ("/v1/{prefix}/namespaces", self._namespaces),
            ("/v1/{prefix}/namespaces/{namespace}", self._namespace),
            ("/v1/{prefix}/namespaces/{namespace}/tables", self._list_tables),
            ("/v1/{prefix}/namespaces/{namespace}/tables/{table}", self._table),
            ("/v1/{prefix}/namespaces/{namespace}/views", self._views),
        ]
        below = "/{kind}/{name:path}"
        routes = [
            Route(base + path, self._answering(answer), methods=["GET"]) for base in ("", below) for path, answer in own
        ]
        reports = "/v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics"
        routes += [Route(base + reports, self._answering(_accept), methods=["POST"]) for base in ("", below)]
        return Starlette(routes=routes, exception_handlers={HTTPException: _refuse})

    def _answering(self, answer: Callable[[Request], Response]) -> Any:
        async def endpoint(request: Request) -> Response:
            given = request.headers.get("authorization", "")
            if not secrets.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
                return _error(401, "Expected the token that the server printed when it started, as a bearer token.")
            try:
                return await run_in_threadpool(answer, request)
            except NotationError as error:
                return _error(400, f"Expected {error.expected}, found {error.found}.")
            except UpstreamMissingError as error:
                return _error(404, str(error))
            except (CatalogUnavailableError, CommitConflictError) as error:
                return _error(503, str(error))
            except IcebergSparkError as error:
                return _error(500, str(error), type(error).__name__)

        return endpoint

    def _config(self, request: Request) -> Response:
        given = request.path_params
        text = f"{given['kind']}/{given['name']}" if given else request.query_params.get("warehouse", "")
        resolution = self._tables.resolve(Point.parse(text))
        return JSONResponse({"defaults": {}, "overrides": {"prefix": resolution.id}, "endpoints": [*_ENDPOINTS]})

    def _resolution(self, request: Request) -> Resolution:
        found = self._tables.known(request.path_params["prefix"])
        if found is None:
            raise HTTPException(404, "This point was resolved by another server, or long ago. Open the catalog again.")
        return found

    def _namespaces(self, request: Request) -> Response:
        parent = tuple(filter(None, request.query_params.get("parent", "").split(_SEPARATOR)))
        spaces = {item.namespace for item in self._resolution(request).snapshots}
        depth = len(parent)
        found = sorted({space[: depth + 1] for space in spaces if len(space) > depth and space[:depth] == parent})
        if parent and not any(space[:depth] == parent for space in spaces):
            raise HTTPException(404, f"There is no namespace {'.'.join(parent)}.")
        return JSONResponse({"namespaces": found, "next-page-token": None})

    def _namespace(self, request: Request) -> Response:
        namespace, _ = self._known_namespace(request)
        return JSONResponse({"namespace": namespace, "properties": {}})

    def _known_namespace(self, request: Request) -> tuple[tuple[str, ...], Resolution]:
        resolution = self._resolution(request)
        namespace = tuple(request.path_params["namespace"].split(_SEPARATOR))
        if not any(item.namespace[: len(namespace)] == namespace for item in resolution.snapshots):
            raise HTTPException(404, f"There is no namespace {'.'.join(namespace)} at {resolution.point}.")
        return namespace, resolution

    def _list_tables(self, request: Request) -> Response:
        namespace, resolution = self._known_namespace(request)
        names = sorted(item.name for item in resolution.snapshots if item.namespace == namespace)
        identifiers = [{"namespace": namespace, "name": name} for name in names]
        return JSONResponse({"identifiers": identifiers, "next-page-token": None})

    def _views(self, request: Request) -> Response:
        self._known_namespace(request)
        return JSONResponse({"identifiers": [], "next-page-token": None})

    def _table(self, request: Request) -> Response:
        resolution = self._resolution(request)
        parts = request.path_params["namespace"].split(_SEPARATOR)
        identifier = TableIdentifier(tuple(parts), request.path_params["table"])
        snapshot_id = resolution.snapshots.get(identifier)
        if snapshot_id is None:
            raise HTTPException(404, f"There is no table {identifier} at {resolution.point}.")
        if request.method == "HEAD":
            return Response(status_code=204)
        found = self._tables.metadata(identifier, snapshot_id)
        if found is None:
            raise HTTPException(404, f"The snapshot {snapshot_id} of {identifier} has expired.")
        location, document = found
        vended = self._tables.vended(identifier)
        return JSONResponse({"metadata-location": location, "metadata": document, **vended})


def _accept(_: Request) -> Response:
    """Take no notice of what a client reports of its scans."""
    return Response(status_code=204)


async def _refuse(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 405 or (status == 404 and request.method not in ("GET", "HEAD")):  # noqa: PLR2004
        return _error(405, _WRITES)
    detail = error.detail if isinstance(error, HTTPException) else str(error)
    is_table = status == 404 and "table" in request.path_params  # noqa: PLR2004
    kinds = f"Points are {', '.join(POINT_KINDS)}." if detail == "Not Found" else ""
    return _error(status, f"{detail} {kinds}".strip(), "NoSuchTableException" if is_table else None)
