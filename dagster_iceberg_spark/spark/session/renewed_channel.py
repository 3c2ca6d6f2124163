"""Connections to Spark Connect servers whose token is renewed while the session lives."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from pyspark.sql.connect.client import core

_BUILDER: Final[Any] = getattr(core, "DefaultChannelBuilder", core.ChannelBuilder)  # 3.5 has one class for both


class _CurrentMetadata:
    """Looks up the metadata for each request. pyspark takes one object for all requests of an operation."""

    def __init__(self, fixed: Iterable[tuple[str, str]], current: Callable[[], Mapping[str, str]]) -> None:
        self._fixed, self._current = dict(fixed), current

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter({**self._fixed, **self._current()}.items())


class RenewedChannelBuilder(_BUILDER):  # type: ignore[misc]  # a class of either version
    """Builds the channel of an address. Each request carries the current metadata.

    Args:
        url: The address.
        current: Returns the metadata that change.
    """

    def __init__(self, url: str, current: Callable[[], Mapping[str, str]]) -> None:
        super().__init__(url)
        self._current = current

    def metadata(self) -> Any:
        """Return the metadata of the address, with those that change."""
        return _CurrentMetadata(super().metadata(), self._current)
