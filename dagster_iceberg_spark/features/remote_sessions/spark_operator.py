"""Spark Connect servers of the Spark operator on Kubernetes."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from dagster_iceberg_spark.catalog.description import first_line
from dagster_iceberg_spark.errors import CatalogUnavailableError, ConfigurationError, SparkEnvironmentError
from dagster_iceberg_spark.features.remote_sessions.readiness import START_SECONDS, Status, wait_until_ready
from dagster_iceberg_spark.timeouts import ANSWER_TIMEOUT_SECONDS, CONNECT_TIMEOUT_SECONDS


@dataclass(frozen=True, kw_only=True)
class SparkConnectService:
    """The server of a `SparkConnect` resource of the Spark operator, for `remote` of `IcebergSparkResource`.

    The resource must exist. Its service is reachable from the cluster alone. Outside of a pod, the kubeconfig's current
    context is used.

    Args:
        name: The name of the resource.
        namespace: The namespace of the resource.
        wait_seconds: Until the server is ready, in seconds.

    Example:
        >>> service = SparkConnectService(name="iceberg", namespace="spark")
    """

    name: str
    namespace: str = "default"
    wait_seconds: float = START_SECONDS

    def connect_url(self) -> str:
        """Return the address of the service as soon as the server is ready."""
        hint = f"read `kubectl describe sparkconnect {self.name} -n {self.namespace}`."
        status = wait_until_ready(str(self), self._status, seconds=self.wait_seconds, hint=hint)
        return f"sc://{status.host}.{self.namespace}.svc.cluster.local:15002"

    def _status(self) -> Status:
        found = self._resource().get("status") or {}
        state, host = found.get("state") or "New", (found.get("server") or {}).get("serviceName", "")
        details = "; ".join(item["message"] for item in found.get("conditions") or () if item.get("message"))
        if state in {"Failed", "Completed"}:
            return Status(state, "over", details)
        return Status(state, "ready" if state == "Ready" and host else "starting", details, host)

    def _resource(self) -> Any:
        try:
            client, config = import_module("kubernetes.client"), import_module("kubernetes.config")
        except ModuleNotFoundError:
            install = "dagster-iceberg-spark[kubernetes]"
            raise ConfigurationError.missing_package("use", repr(self), package="kubernetes", install=install) from None
        from urllib3.exceptions import HTTPError

        known: type[CatalogUnavailableError | SparkEnvironmentError] = SparkEnvironmentError
        configuration = client.Configuration()
        try:
            try:
                config.load_incluster_config(client_configuration=configuration)
            except config.ConfigException:
                config.load_kube_config(client_configuration=configuration)
            place = ("sparkoperator.k8s.io", "v1alpha1", self.namespace, "sparkconnects", self.name)
            resources = client.CustomObjectsApi(client.ApiClient(configuration))
            limits = (CONNECT_TIMEOUT_SECONDS, ANSWER_TIMEOUT_SECONDS)
            return resources.get_namespaced_custom_object(*place, _request_timeout=limits)
        except config.ConfigException as error:
            found = first_line(error)
        except client.ApiException as error:
            found, is_busy = f"{error.status} {error.reason}", error.status == 429 or error.status >= 500  # noqa: PLR2004
            known = CatalogUnavailableError if is_busy else known
        except HTTPError as error:
            found, known = first_line(error), CatalogUnavailableError
        raise known.refusing("use", repr(self), expected="an answer of Kubernetes", found=found)
