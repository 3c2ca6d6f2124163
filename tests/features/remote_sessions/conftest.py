"""The services, their clock, and providers that forget what earlier tests have started."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import boto3.session
import botocore.session
import pytest

from dagster_iceberg_spark.features.remote_sessions import emr, readiness
from tests.features.remote_sessions.services import Aws, Clock, serving


@pytest.fixture(scope="session")
def models() -> Any:
    """A session that has read the descriptions of AWS's services, which takes as long as ten tests."""
    return botocore.session.Session()


@pytest.fixture
def aws(models: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    monkeypatch.setattr(boto3.session, "Session", partial(boto3.session.Session, botocore_session=models))
    for name, value in {"ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "hush", "MAX_ATTEMPTS": "1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    fake = Aws()
    with serving(fake.answer) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        yield fake
        emr.close_all()
    emr._held.clear()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (emr, readiness):
        monkeypatch.setattr(module, "time", clock)
    return clock
