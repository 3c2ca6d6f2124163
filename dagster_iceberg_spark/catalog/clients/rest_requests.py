"""Sends requests to a REST catalog that pyiceberg 0.12 does not send: commits with a key, and one for credentials.

By the key, the server recognizes a repeated request. It is the header `Idempotency-Key` of Iceberg's REST
specification. A server that takes it says so in its answer to `v1/config`, in the field `idempotency-key-lifetime`.
"""

import random
import time
import uuid
from collections.abc import Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

from pyiceberg.catalog import TOKEN, WAREHOUSE_LOCATION
from pyiceberg.catalog.rest import _RETRY_ARGS, Endpoints, RestCatalog
from pyiceberg.catalog.rest.response import _handle_non_200_response
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError
from requests import HTTPError, RequestException, Response
from tenacity import retry

_HEADER: Final = "Idempotency-Key"
_LIFETIME: Final = "idempotency-key-lifetime"
_UNKNOWN: Final = (500, 502, 504)
"""The answers after which it is unknown whether a commit was made (REST specification, `updateTable`)."""
_UNAVAILABLE: Final = 503
_CREDENTIALS: Final = "storage-credentials"
_REPETITIONS: Final = 3
_FIRST_WAIT_SECONDS: Final = 0.2
_takes_keys: "WeakKeyDictionary[RestCatalog, bool]" = WeakKeyDictionary()


def new_key() -> str:
    """Return a UUID of version 7 (RFC 9562): milliseconds since 1970, and random bits."""
    bits = (time.time_ns() // 1_000_000) << 80 | random.SystemRandom().getrandbits(80)
    return str(uuid.UUID(int=bits & ~(0xF << 76 | 0x3 << 62) | 0x7 << 76 | 0x2 << 62))


def takes_keys(catalog: RestCatalog) -> bool:
    """Return whether the server answers a repeated request as it has answered the first. It is asked once."""
    if catalog not in _takes_keys:
        warehouse = catalog.properties.get(WAREHOUSE_LOCATION)
        params = {} if warehouse is None else {WAREHOUSE_LOCATION: warehouse}
        try:
            response = catalog._session.get(catalog.url("config", prefixed=False), params=params)  # noqa: SLF001
            _takes_keys[catalog] = response.ok and bool(response.json().get(_LIFETIME))
        except RequestException:  # the commit will show it
            return False
    return _takes_keys[catalog]


def vended_credentials(catalog: RestCatalog, identifier: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields `config` and `storage-credentials` of the server's answer to `loadTable`.

    The token of the table, by which a client could commit, is left out.
    """
    place = catalog._split_identifier_for_path(identifier)  # noqa: SLF001 - no public call encodes it
    delegation = {"X-Iceberg-Access-Delegation": "vended-credentials"}
    url = catalog.url(Endpoints.load_table, **place)
    response = catalog._session.get(url, headers=delegation, params={"snapshots": "refs"})  # noqa: SLF001
    try:
        response.raise_for_status()
    except HTTPError as error:
        _handle_non_200_response(error, {404: NoSuchTableError})
    answer = response.json()
    config = {key: value for key, value in (answer.get("config") or {}).items() if key != TOKEN}
    return {"config": config, **({_CREDENTIALS: answer[_CREDENTIALS]} if answer.get(_CREDENTIALS) else {})}


def post_commit(catalog: RestCatalog, path: str, document: str, *, key: str, token: str | None = None) -> None:
    """Send a commit. If its answer is lost and the server takes keys, ask again for the same answer.

    The answer itself is not read: pyiceberg could not read the metadata of a table with a type that it lacks.

    Args:
        catalog: The catalog.
        path: The endpoint, without the prefix.
        document: The body, in JSON.
        key: The key of the commit, which is new for each attempt of ours.
        token: The token of the table, if the catalog has given one.

    Raises:
        CommitFailedException: The table does not meet the requirements.
        CommitStateUnknownException: It is unknown whether the commit was made.
    """
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    login_again: Any = _RETRY_ARGS  # if the server asks for it
    retry(**login_again)(_answered)(catalog, path, document, headers, key if takes_keys(catalog) else None)


def _answered(catalog: RestCatalog, path: str, document: str, headers: Mapping[str, str], key: str | None) -> None:
    response = _sent(catalog, path, document, headers, key)
    try:
        response.raise_for_status()
    except HTTPError as error:
        unknown = dict.fromkeys(_UNKNOWN, CommitStateUnknownException)
        _handle_non_200_response(error, {409: CommitFailedException, **unknown})


def _sent(catalog: RestCatalog, path: str, document: str, headers: Mapping[str, str], key: str | None) -> Response:
    """Return the answer, after as many requests as a key allows."""
    session, last = catalog._session, 0 if key is None else _REPETITIONS  # noqa: SLF001 - it has the login
    own = {**headers, **({} if key is None else {_HEADER: key})}
    for number in range(last):
        try:
            response = session.post(catalog.url(path), data=document.encode(), headers=own)
            if response.status_code not in (*_UNKNOWN, _UNAVAILABLE):
                return response
        except RequestException:  # the server may have answered
            pass
        time.sleep(_FIRST_WAIT_SECONDS * 2**number)
    return session.post(catalog.url(path), data=document.encode(), headers=own)
