"""An HTTP proxy in front of a REST catalog that loses, delays and repeats commits when a test asks for it."""

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

from tests.servers.proxy import Answer, HttpProxy, Request, error_answer

Moment: TypeAlias = Literal["before forwarding", "after forwarding"]
Actions: TypeAlias = tuple[str, ...]
"""What a commit does: the names of its updates, such as `add-snapshot`."""

_COMMIT: Final = re.compile(r".*/namespaces/[^/]+/tables/[^/]+|.*/transactions/commit")


@dataclass(frozen=True, slots=True)
class Fault:
    """What becomes of a commit; by default, nothing.

    Args:
        forwards: How often the catalog gets the request.
        answer: What the client gets: the catalog's first or last answer, a status, or None, a closed connection.
        seconds_before: Seconds before the request is forwarded.
        seconds_after: Seconds before the client gets the answer.
        retry_after_seconds: The header `Retry-After` of an answer with a status.
    """

    forwards: int = 1
    answer: Literal["first", "last"] | int | None = "last"
    seconds_before: float = 0.0
    seconds_after: float = 0.0
    retry_after_seconds: int | None = None


@dataclass(slots=True)
class _Planned:
    fault: Fault
    left: int | None
    applies: Callable[[Actions], bool]


@dataclass(slots=True)
class _Plan:
    """The faults to come, and those that have been."""

    planned: list[_Planned] = field(default_factory=list)
    injected: list[Fault] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next_for(self, actions: Actions) -> Fault:
        with self.lock:
            for item in self.planned:
                if item.left != 0 and item.applies(actions):
                    item.left = None if item.left is None else item.left - 1
                    self.injected.append(item.fault)
                    return item.fault
        return Fault()


def adds_snapshot(actions: Actions) -> bool:
    """Say whether a commit adds a snapshot."""
    return "add-snapshot" in actions


class FaultyProxy(HttpProxy):
    """Passes everything on to the catalog, save for the faults that are injected.

    Args:
        uri: The catalog's.

    Attributes:
        on_commit: Called before and after each forwarding of a commit that adds a snapshot, in the request's thread.
    """

    def __init__(self, uri: str) -> None:
        self.on_commit: Callable[[Moment], None] = _ignore
        self._plan = _Plan()
        self._under_way = 0
        self._changed = threading.Condition()
        self._closing = threading.Event()
        super().__init__(uri)

    @property
    def injected(self) -> list[Fault]:
        """The faults that commits have met since the last `heal`."""
        return self._plan.injected

    def inject(
        self, fault: Fault, *, times: int | None = 1, applies: Callable[[Actions], bool] = adds_snapshot
    ) -> None:
        """Let the fault happen to so many of the next commits to which it applies, or to all of them (None)."""
        self._plan.planned.append(_Planned(fault, times, applies))

    def heal(self) -> None:
        """Inject nothing any more; what is under way goes on."""
        self._plan = _Plan()
        self.on_commit = _ignore

    def wait_until_idle(self, seconds: float) -> None:
        """Wait for the commits under way, also for those whose client has given up."""
        with self._changed:
            assert self._changed.wait_for(lambda: not self._under_way, seconds)

    def close(self) -> None:
        self._closing.set()
        super().close()

    def answer_to(self, request: Request) -> Answer | None:
        if request.method != "POST" or not _COMMIT.fullmatch(urlsplit(request.path).path):
            return self.forward(request)
        actions = _actions(request.body)
        fault = self._plan.next_for(actions)
        on_commit = self.on_commit if adds_snapshot(actions) else _ignore
        self._count(1)
        try:
            self._closing.wait(fault.seconds_before)
            answers = []
            for _ in range(fault.forwards):
                on_commit("before forwarding")
                answers.append(self.forward(request))
                on_commit("after forwarding")
            self._closing.wait(fault.seconds_after)
            return _chosen(fault, answers)
        finally:
            self._count(-1)

    def _count(self, difference: int) -> None:
        with self._changed:
            self._under_way += difference
            self._changed.notify_all()


def _actions(body: bytes) -> Actions:
    document = json.loads(body)
    changes = document.get("table-changes", [document])
    return tuple(update["action"] for change in changes for update in change["updates"])


def _chosen(fault: Fault, answers: list[Answer]) -> Answer | None:
    if fault.answer is None:
        return None
    if isinstance(fault.answer, int):
        retry_after = () if fault.retry_after_seconds is None else (("Retry-After", str(fault.retry_after_seconds)),)
        return error_answer(fault.answer, "injected by the test", retry_after)
    return answers[0] if fault.answer == "first" else answers[-1]


def _ignore(_moment: Moment) -> None:
    """Do nothing at that moment."""
