"""The server of a SparkConnect resource: its address, as soon as it is ready.

docs/clusters.md: Kubernetes
"""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from dagster_iceberg_spark import (
    CatalogUnavailableError,
    ConfigurationError,
    SparkConnectService,
    SparkEnvironmentError,
)
from tests.features.remote_sessions.services import Answer, Clock, serving

PATH = "/apis/sparkoperator.k8s.io/v1alpha1/namespaces/spark/sparkconnects/iceberg"
READY = {"state": "Ready", "server": {"serviceName": "iceberg-server"}}
SERVICE = SparkConnectService(name="iceberg", namespace="spark")


def failed(state: str, message: str) -> dict[str, Any]:
    return {"state": state, "conditions": [{"type": "ServerPodReady", "status": "False", "message": message}]}


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Answer]]:
    """The answers of a Kubernetes API, one for each request. The last one stays. A kubeconfig names it."""
    kube_config = import_module("kubernetes.config.kube_config")
    given: list[Answer] = []

    def answer(method: str, path: str, _: str, __: dict[str, Any]) -> Answer:
        assert (method, path) == ("GET", PATH)
        return given.pop(0) if len(given) > 1 else given[0]

    with serving(answer) as address:
        config = {
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{"name": "test", "cluster": {"server": address}}],
            "users": [{"name": "test", "user": {"token": "hush"}}],
        }
        (tmp_path / "config").write_text(yaml.safe_dump(config))
        monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "config"))
        yield given


def test_the_address_is_that_of_the_service(answers: list[Answer]) -> None:
    answers.append((200, {"status": READY}))
    assert SERVICE.connect_url() == "sc://iceberg-server.spark.svc.cluster.local:15002"


def test_a_server_that_starts_is_waited_for(answers: list[Answer], clock: Clock) -> None:
    begun = clock.now
    answers += [(200, {}), (200, {"status": failed("NotReady", "pulling")}), (200, {"status": READY})]
    assert SERVICE.connect_url().startswith("sc://iceberg-server.")
    assert clock.now - begun == 10


@pytest.mark.parametrize("state", ["Failed", "Completed"])
def test_a_server_that_has_ended_is_an_error_with_its_details(state: str, answers: list[Answer]) -> None:
    answers.append((200, {"status": failed(state, "Server pod failed: OOM")}))
    with pytest.raises(SparkEnvironmentError, match=rf"{state} \(Server pod failed: OOM\).*kubectl describe"):
        SERVICE.connect_url()


def test_a_server_that_is_not_ready_in_time_is_an_error(answers: list[Answer], clock: Clock) -> None:
    answers.append((200, {"status": failed("NotReady", "pulling")}))
    with pytest.raises(CatalogUnavailableError, match=r"within 600 s, found the state NotReady \(pulling\)"):
        SERVICE.connect_url()


@pytest.mark.parametrize(
    ("status", "error"), [(404, SparkEnvironmentError), (403, SparkEnvironmentError), (503, CatalogUnavailableError)]
)
def test_errors_of_kubernetes_are_errors_of_the_package(
    status: int, error: type[Exception], answers: list[Answer]
) -> None:
    answers.append((status, {"message": "no"}))
    with pytest.raises(error, match=rf"name='iceberg'.*{status}") as refused:
        SERVICE.connect_url()
    assert "hush" not in str(refused.value)


def test_a_missing_client_is_an_error_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    monkeypatch.setitem(sys.modules, "kubernetes.client", None)
    with pytest.raises(ConfigurationError, match=r"install `dagster-iceberg-spark\[kubernetes\]`"):
        SERVICE.connect_url()
