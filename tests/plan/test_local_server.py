"""The decision about the local Spark Connect server."""

import pytest

from dagster_iceberg_spark.plan.local_server import ServerState, decide_server

SERVER = ServerState("a", 15002, "same", "secret")


@pytest.mark.parametrize(
    ("state", "fingerprint", "answers", "decision"),
    [
        (None, "same", False, "start"),
        (SERVER, "same", True, "use"),
        (SERVER, "same", False, "replace"),
        (SERVER, "other", True, "replace"),
        (SERVER, "other", False, "replace"),
    ],
)
def test_a_server_is_used_only_if_it_answers_and_is_configured_alike(
    state: ServerState | None, fingerprint: str, answers: bool, decision: str
) -> None:
    assert decide_server(state, fingerprint=fingerprint, answers=answers) == decision


def test_the_token_is_not_in_the_representation() -> None:
    assert "secret" not in repr(SERVER)
