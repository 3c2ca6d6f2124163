"""Keeps what was seen of each feature with the installed version of Spark."""

from tests.seen_versions import (  # noqa: F401
    _mirrors_agree,
    pytest_collection_modifyitems,
    pytest_pyfunc_call,
    pytest_runtest_makereport,
    pytest_sessionfinish,
)
