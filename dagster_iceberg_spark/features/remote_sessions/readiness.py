"""Waits until a session that a service starts is ready."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from dagster_iceberg_spark.errors import CatalogUnavailableError, SparkEnvironmentError

START_SECONDS: Final = 600.0
"""Until a session is ready: a service may have to start machines."""
_LOOK_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Status:
    """What a service says about a session. One that is over does not come back."""

    state: str
    stage: Literal["starting", "ready", "over"]
    details: str = ""
    host: str = ""

    def __str__(self) -> str:
        return f"{self.state} ({self.details})" if self.details else self.state


def wait_until_ready(subject: str, look: Callable[[], Status], *, seconds: float, hint: str | None = None) -> Status:
    """Ask for the status of a session until it is ready. The hint is for a session that is over.

    Raises:
        SparkEnvironmentError: The session is over.
        CatalogUnavailableError: The session is not ready in time.
    """
    deadline = time.monotonic() + seconds
    while (status := look()).stage == "starting" and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    if status.stage == "ready":
        return status
    error, expected = SparkEnvironmentError, "a session that is ready"
    if status.stage == "starting":
        error, expected = CatalogUnavailableError, f"{expected} within {seconds:.0f} s"  # type: ignore[assignment]
        hint = "raise `wait_seconds` if the service needs longer to start."
    raise error.refusing("open", subject, expected=expected, found=f"the state {status}", hint=hint)
