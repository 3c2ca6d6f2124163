"""Authorities that the JVM trusts beside the publicly known ones.

Iceberg's REST client takes its TLS settings from a class of one's own, or else from the JVM's default context
(HTTPClient.configureConnectionManager). There is no such class in its jars; so the default context is set anew.
"""

import threading
from typing import Any

from pyspark.sql import SparkSession

from dagster_iceberg_spark.catalog.description import CatalogDescription
from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.spark.columns import is_connect
from dagster_iceberg_spark.spark.engine_failure import ENGINE_ERRORS, inspect_failure


class JvmTrust:
    """Who the process's JVM trusts: the authorities of all its catalogs, because its default context is one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bundles: list[str] = []
        self._context: Any = None

    def extend(self, context: Any, bundle: str) -> None:
        """Trust the authorities of the file too.

        Raises:
            ConfigurationError: The file holds no certificates.
        """
        with self._lock:
            if self._context is not context:
                self._bundles, self._context = [], context
            if bundle in self._bundles:
                return
            _refuse_client_certificate(context, bundle)
            try:
                _trust(context, (*self._bundles, bundle))
            except ENGINE_ERRORS as error:
                raise ConfigurationError.refusing(
                    "use",
                    f"`ca_bundle` {bundle}",
                    expected="a PEM file with certificates",
                    found=inspect_failure(error).summary,
                ) from error
            self._bundles.append(bundle)


_jvm_trust = JvmTrust()


def trust_authorities(session: SparkSession, catalog: CatalogDescription) -> None:
    """Let the session's JVM trust the authorities of the catalog; a Spark Connect server's JVM is out of reach.

    Raises:
        ConfigurationError: The file holds no certificates.
    """
    if catalog.ca_bundle is not None and not is_connect(session):
        _jvm_trust.extend(session.sparkContext, catalog.ca_bundle)


def _refuse_client_certificate(context: Any, bundle: str) -> None:
    """Refuse to replace a default context that knows a client's certificate, which the new one would not."""
    known = context._jvm.java.lang.System.getProperty("javax.net.ssl.keyStore")
    if known is not None:
        raise ConfigurationError.refusing(
            "use",
            f"`ca_bundle` {bundle}",
            expected="a JVM without a key store of its own",
            found=f"`javax.net.ssl.keyStore` {known}",
            hint="put the authority into the JVM's trust store (`-Djavax.net.ssl.trustStore`), and leave `ca_bundle` "
            "out or set it for pyiceberg alone, by `properties`.",
        )


def _trust(context: Any, bundles: tuple[str, ...]) -> None:
    java, javax = context._jvm.java, context._jvm.javax
    known = java.security.KeyStore.getInstance("PKCS12")
    known.load(None, None)
    read = java.security.cert.CertificateFactory.getInstance("X.509")
    certificates = [*_public_authorities(context)]
    for bundle in bundles:
        stream = java.io.FileInputStream(bundle)
        certificates.extend(read.generateCertificates(stream))
        stream.close()
    for number, certificate in enumerate(certificates):
        known.setCertificateEntry(str(number), certificate)
    managers = _managers(context)
    managers.init(known)
    tls = javax.net.ssl.SSLContext.getInstance("TLS")
    tls.init(None, managers.getTrustManagers(), None)
    javax.net.ssl.SSLContext.setDefault(tls)


def _public_authorities(context: Any) -> Any:
    """Return what the JVM trusts of itself: by a file of its own, or by `javax.net.ssl.trustStore`."""
    managers = _managers(context)
    java, gateway = context._jvm.java, context._gateway  # noqa: SLF001 - arrays are made by nothing else
    # A bare null would fit two methods of that name.
    parameters = gateway.new_array(java.lang.Class, 1)
    parameters[0] = java.lang.Class.forName("java.security.KeyStore")
    init = managers.getClass().getMethod("init", parameters)
    init.invoke(managers, gateway.new_array(java.lang.Object, 1))
    return managers.getTrustManagers()[0].getAcceptedIssuers()


def _managers(context: Any) -> Any:
    factory = context._jvm.javax.net.ssl.TrustManagerFactory
    return factory.getInstance(factory.getDefaultAlgorithm())
