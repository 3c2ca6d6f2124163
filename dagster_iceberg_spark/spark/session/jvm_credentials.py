"""Credentials for the JVM. They are the same that pyiceberg uses, and AWS credentials are refreshed before they expire.

The JVM of a local session reads them from its system properties, which this process updates. Open catalogs and running
writes continue with the new ones. The nodes of a cluster and a Spark Connect server have their own identity, which may
assume the role.
"""

import logging
import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from dagster_iceberg_spark.catalog.description import AwsIdentity, AwsKeys, CatalogDescription
from dagster_iceberg_spark.errors import ConfigurationError, IcebergSparkError, SparkEnvironmentError
from dagster_iceberg_spark.spark.failures import ENGINE_ERRORS
from dagster_iceberg_spark.spark.session.runtime import is_in_process
from dagster_iceberg_spark.timeouts import REFRESH_SECONDS

_logger = logging.getLogger(__name__)


class JvmIdentity:
    """The AWS identity of the process's JVM. All of its catalogs share it, because system properties are per JVM."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._identity: AwsIdentity | None = None
        self._keys: AwsKeys | None = None
        self._context: Any = None

    def take(self, identity: AwsIdentity, context: Any, keys: AwsKeys) -> None:
        """Set the identity's keys in the JVM, and update them when they change."""
        with self._lock:
            if self._context is context and self._identity != identity:
                raise SparkEnvironmentError.refusing(
                    "give",
                    "the Spark session its AWS credentials",
                    expected="one AWS profile or role for all catalogs of a process",
                    found="two",
                    hint="run the assets in processes of their own (Dagster's multiprocess executor); a store, not "
                    "Glue, also takes an access key of its own.",
                )
            is_new = self._context is not context
            if is_new:
                self._keys = None
            self._identity, self._context = identity, context
            self._tell(keys)
            if is_new and keys.session_token is not None:
                threading.Thread(target=self._refresh, args=(context,), name="aws-credentials", daemon=True).start()

    def _refresh(self, context: Any) -> None:
        from dagster_iceberg_spark.catalog.aws_credentials import current_keys

        while True:
            time.sleep(REFRESH_SECONDS)
            with self._lock:
                if self._context is not context or self._identity is None:
                    return
                identity = self._identity
            try:
                keys = current_keys(identity)
            except IcebergSparkError as error:
                _logger.warning("AWS credentials could not be renewed: %s", error)
                continue
            with self._lock:
                if self._context is not context or self._identity != identity:
                    return
                try:
                    if keys is not None:
                        self._tell(keys)
                except (*ENGINE_ERRORS, AttributeError, OSError):  # the JVM has ended
                    return

    def _tell(self, keys: AwsKeys) -> None:
        if keys == self._keys:
            return
        system = self._context._jvm.java.lang.System
        system.setProperty("aws.accessKeyId", keys.access_key_id)
        system.setProperty("aws.secretAccessKey", keys.secret_access_key)
        if keys.session_token is None:
            system.clearProperty("aws.sessionToken")
        else:
            system.setProperty("aws.sessionToken", keys.session_token)
        self._keys = keys


class JvmProperties:
    """The system properties that catalogs have set in the process's JVM. All catalogs share one value of each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, str] = {}
        self._context: Any = None

    def set(self, context: Any, properties: Mapping[str, str]) -> None:
        """Set properties in the JVM."""
        with self._lock:
            if self._context is not context:
                self._values, self._context = {}, context
            for name, value in properties.items():
                if self._values.setdefault(name, value) != value:
                    raise SparkEnvironmentError.refusing(
                        "give",
                        "the Spark session what its catalog needs",
                        expected=f"one value of the system property {name} for all catalogs of a process",
                        found="two",
                        hint="run the assets in processes of their own (Dagster's multiprocess executor).",
                    )
                context._jvm.java.lang.System.setProperty(name, value)


_jvm_properties = JvmProperties()
_jvm_identity = JvmIdentity()


def aws_properties(session: SparkSession, catalog: CatalogDescription) -> Mapping[str, str]:
    """Return the catalog's AWS properties for this session, and set the keys in its JVM if it reads them from there.

    The JVM's default chain begins with its system properties. Keys in the catalog's properties, or keys that a catalog
    vends, precede the default chain. A provider named in the properties would precede both.
    """
    if not catalog.needs_region:
        return {}
    # Importing boto3 takes a quarter of a second.
    from dagster_iceberg_spark.catalog.aws_credentials import current_keys, region_of

    region, properties = region_of(catalog), catalog.spark_properties
    known = {} if region is None or "client.region" in properties else {"client.region": region}
    if region is not None and catalog.is_signed and not catalog.is_glue and "rest.signing-region" not in properties:
        known["rest.signing-region"] = region
    identity = catalog.aws
    if identity is None or (identity.fixed_keys is not None and not catalog.is_glue):
        return known
    if not is_in_process(session):
        return {**known, **_of_nodes(identity, region, catalog)}
    keys = current_keys(identity)
    if keys is not None:
        _jvm_identity.take(identity, session.sparkContext, keys)
    return known


def _of_nodes(identity: AwsIdentity, region: str | None, catalog: CatalogDescription) -> dict[str, str]:
    """Return properties with which the nodes' identities assume the role (Iceberg, "AWS Integrations")."""
    refused = partial(ConfigurationError.refusing, "use", f"the AWS credentials of the {catalog!s}")
    if identity.fixed_keys is not None:
        raise refused(
            expected="keys that Spark's nodes have by themselves",
            found="keys in the configuration, which Glue's client has no property for",
            hint="leave `credentials` out, or give a `role_arn` alone.",
        )
    if identity.role_arn is None:
        return {}
    if region is None:
        raise refused(expected="a `region` for the role", found="none", hint="set `region`.")
    return {
        "client.factory": "org.apache.iceberg.aws.AssumeRoleAwsClientFactory",
        "client.assume-role.arn": identity.role_arn,
        "client.assume-role.region": region,
        **({"client.assume-role.external-id": identity.external_id} if identity.external_id else {}),
        **({"client.assume-role.session-name": identity.role_session_name} if identity.role_session_name else {}),
    }


def set_jvm_properties(session: SparkSession, catalog: CatalogDescription) -> None:
    """Set the JVM's system properties for which Iceberg has no catalog property."""
    if not catalog.system_properties:
        return
    if not is_in_process(session):
        raise ConfigurationError.refusing(
            "use",
            f"the credentials of the {catalog!s}",
            expected="a local Spark session, or an identity that Spark's nodes have by themselves",
            found=f"a Spark of other machines, which do not get {', '.join(catalog.system_properties)}",
            hint="set them as environment variables where Spark's nodes and Dagster run, and leave the fields out.",
        )
    _jvm_properties.set(session.sparkContext, catalog.system_properties)
