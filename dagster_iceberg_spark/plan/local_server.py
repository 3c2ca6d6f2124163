"""Decides whether a process uses the local Spark Connect server, starts one, or replaces it."""

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

LOCAL: Final = "local"
"""The value of `remote` that means the local server."""
ServerDecision: TypeAlias = Literal["use", "start", "replace"]


@dataclass(frozen=True, slots=True)
class ServerState:
    """A server that a process has started.

    Args:
        name: The name of the server, which no other server has.
        port: The port on 127.0.0.1.
        fingerprint: The digest of the static configuration.
        token: The token that the server expects.
    """

    name: str
    port: int
    fingerprint: str
    token: str = field(repr=False)


def decide_server(state: ServerState | None, *, fingerprint: str, answers: bool) -> ServerDecision:
    """Return what to do with the server.

    Args:
        state: The server that is recorded, if any.
        fingerprint: The digest of the static configuration that is wanted.
        answers: Whether the recorded server answers.
    """
    if state is None:
        return "start"
    return "use" if answers and state.fingerprint == fingerprint else "replace"
