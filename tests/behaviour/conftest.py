"""Which behaviours are run over Spark Connect when."""

from typing import Final

import pytest

LONG: Final = (
    "test_changes",
    "test_changes_model",
    "test_history",
    "test_inputs",
    "test_loads",
    "test_merging",
    "test_outputs",
    "test_overwrite_partitions",
    "test_replace",
    "test_replace_where",
    "test_schemas",
)
"""Files whose tests take long. Each holds on both engines: `make test` runs the classic half of them, `make
test-servers` the other. What differs between the engines is in the other files."""


@pytest.hookimpl(tryfirst=True)  # before it is known which are chosen
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if parameters.get("engine") == "connect" and item.path.stem in LONG:
            item.add_marker(pytest.mark.server)
