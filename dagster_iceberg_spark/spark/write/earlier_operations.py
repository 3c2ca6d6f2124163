"""Stops operations of earlier attempts. A Spark Connect server continues them when its client dies.

This uses the messages of Spark Connect's protocol (`spark/connect/base.proto`), because its Python client can send them
for its own session only.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from dagster_iceberg_spark.errors import CatalogUnavailableError
from dagster_iceberg_spark.plan.write.write_request import RemoteAttempt, Report
from dagster_iceberg_spark.timeouts import END_SECONDS, INTERRUPT_ANSWER_SECONDS

if TYPE_CHECKING:
    from grpc import RpcError

_NOTHING_THERE: Final = ("SESSION_NOT_FOUND", "SESSION_CLOSED", "SESSION_CHANGED")
"""Spark's error conditions for a session that has ended, in which nothing runs any more."""


def attempt_in(session: Any, tag: str) -> RemoteAttempt:
    """Return how an attempt in this session of a Spark Connect server can be found again."""
    client: Any = session.client
    return RemoteAttempt(tag=tag, session_id=client._session_id, user_id=client._user_id or "", server=_server(client))  # noqa: SLF001 - no public way


def stop_earlier(session: Any, attempts: Sequence[RemoteAttempt], *, report: Report, subject: str) -> None:
    """Stop the operations of earlier attempts on the session's server, and wait until they have ended."""
    client: Any = session.client
    for attempt in dict.fromkeys(attempts):
        if attempt.server != _server(client):
            report(
                f"An earlier attempt wrote {subject} in session {attempt.session_id} of {attempt.server}, which is "
                f"another Spark Connect server than {_server(client)}: whether it still runs is not known here."
            )
            continue
        operations = _interrupt(client, attempt, subject)
        for operation in operations:
            _wait_for_end(client, attempt, operation, subject)
        if operations:
            report(f"Stopped what an earlier attempt to write {subject} had left running in {attempt.session_id}.")


def _server(client: Any) -> str:
    return str(client._builder.endpoint)  # noqa: SLF001 - no public way


def _interrupt(client: Any, attempt: RemoteAttempt, subject: str) -> Sequence[str]:
    """Interrupt the attempt's operations and return their ids."""
    from grpc import RpcError
    from pyspark.sql.connect.proto import InterruptRequest

    request = InterruptRequest(
        session_id=attempt.session_id,
        interrupt_type=InterruptRequest.InterruptType.INTERRUPT_TYPE_TAG,
        operation_tag=attempt.tag,
    )
    request.user_context.user_id = attempt.user_id
    try:
        answer = client._stub.Interrupt(request, metadata=client._builder.metadata(), timeout=INTERRUPT_ANSWER_SECONDS)  # noqa: SLF001
    except RpcError as error:
        if any(condition in str(error) for condition in _NOTHING_THERE):
            return ()
        raise _no_answer(attempt, error, subject) from error
    return tuple(answer.interrupted_ids)


def _wait_for_end(client: Any, attempt: RemoteAttempt, operation: str, subject: str) -> None:
    """Attach to the operation until the server ends it, which it does when its thread has returned."""
    from grpc import RpcError, StatusCode
    from pyspark.sql.connect.proto import ReattachExecuteRequest

    request = ReattachExecuteRequest(session_id=attempt.session_id, operation_id=operation)
    request.user_context.user_id = attempt.user_id
    try:
        for _ in client._stub.ReattachExecute(request, metadata=client._builder.metadata(), timeout=END_SECONDS):  # noqa: SLF001
            pass
    except RpcError as error:
        # The end of the operation is an error: it was cancelled, or it no longer exists.
        if error.code() in (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED):
            raise _no_answer(attempt, error, subject) from error


def _no_answer(attempt: RemoteAttempt, error: "RpcError", subject: str) -> CatalogUnavailableError:
    return CatalogUnavailableError.refusing(
        "stop an earlier attempt to write",
        subject,
        expected=f"that session {attempt.session_id} of {attempt.server} ends it",
        found=str(error.details()),
        hint="run the asset again when the server answers.",
    )
