"""Iceberg's REST reference server, from its published jars: no Maven needed, only Java and what pyspark brings."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway

from tests.servers.jars import fetched, java, pyspark_jars

ICEBERG_VERSION: Final = "1.11.0"
JETTY_VERSION: Final = "12.1.14"
SQLITE_JDBC_VERSION: Final = "3.53.4.0"
SLF4J_VERSION: Final = "2.0.17"

IVY_FILE: Final = f"""\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="dagster-iceberg-spark" module="rest-server"/>
  <dependencies>
    <dependency org="org.apache.iceberg" name="iceberg-core" rev="{ICEBERG_VERSION}" conf="default->compile,runtime">
      <artifact name="iceberg-core" type="jar"/>
      <artifact name="iceberg-core" type="jar" m:classifier="tests"/>
    </dependency>
    <dependency org="org.apache.iceberg" name="iceberg-aws" rev="{ICEBERG_VERSION}" conf="default->default"/>
    <dependency org="org.apache.iceberg" name="iceberg-aws-bundle" rev="{ICEBERG_VERSION}" conf="default->master"/>
    <dependency org="org.eclipse.jetty.ee10" name="jetty-ee10-servlet" rev="{JETTY_VERSION}" conf="default->default"/>
    <dependency org="org.xerial" name="sqlite-jdbc" rev="{SQLITE_JDBC_VERSION}" conf="default->master"/>
    <dependency org="org.slf4j" name="slf4j-simple" rev="{SLF4J_VERSION}" conf="default->master"/>
  </dependencies>
</ivy-module>
"""
"""The server's classes are in the tests jar of iceberg-core."""
FROM_PYSPARK: Final = ("hadoop-client-api", "hadoop-client-runtime", "jcl-over-slf4j", "py4j")
"""Jars that pyspark ships, so that nobody downloads Hadoop twice."""


class RestServer:
    """The reference server's servlet over a SQLite catalog, listening on the loopback address alone.

    `RESTCatalogServer` itself, the main class of `iceberg-open-api`, listens on every interface and has no setting for
    it. So the same servlet and adapter are put into a Jetty server here, from Python, through a gateway of py4j.

    Args:
        directory: Of the catalog's file, the log, and the tables.
        properties: Further properties of the catalog behind it, such as another `warehouse`.
    """

    def __init__(self, directory: Path, properties: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.warehouse = directory / "warehouse"
        self._properties = {"warehouse": f"file://{self.warehouse}", **(properties or {})}
        self._log = (directory / "server.log").open("w")
        jars = [*fetched("rest-server", IVY_FILE), *pyspark_jars(*FROM_PYSPARK)]
        options = ["-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", os.pathsep.join(map(str, jars))]
        self._process = subprocess.Popen(
            [java(), *options, "py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._gateway = self._attach()
        self._jetty = self._serve(0)
        self.port = int(self._jetty.getConnectors()[0].getLocalPort())

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start again after `stop`, on the same port."""
        self._jetty = self._serve(self.port)

    def stop(self) -> None:
        self._jetty.stop()

    @property
    def is_running(self) -> bool:
        return bool(self._jetty.isStarted())

    def close(self) -> None:
        """End the server's process; it also ends when its standard input does."""
        self._gateway.close()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.kill()
        self._process.wait()
        self._log.close()

    def _attach(self) -> JavaGateway:
        assert self._process.stdout is not None
        port, token = (self._process.stdout.readline().strip() for _ in range(2))
        if not token:
            pytest.fail(f"the REST server's process died:\n{(self.directory / 'server.log').read_text()[-4000:]}")
        return JavaGateway(gateway_parameters=GatewayParameters(port=int(port), auth_token=token, auto_convert=True))

    def _serve(self, port: int) -> Any:
        jvm: Any = self._gateway.jvm
        properties = {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{self.directory / 'catalog.db'}",
            "jdbc.schema-version": "V1",
            "clients": "1",  # one connection, as the reference server has: SQLite takes one writer
            **self._properties,
        }
        conf = jvm.org.apache.hadoop.conf.Configuration()
        catalog = jvm.org.apache.iceberg.CatalogUtil.buildIcebergCatalog("rest", properties, conf)
        servlet = jvm.org.apache.iceberg.rest.RESTCatalogServlet(
            jvm.org.apache.iceberg.rest.RESTCatalogAdapter(catalog)
        )
        context = jvm.org.eclipse.jetty.ee10.servlet.ServletContextHandler()
        context.addServlet(jvm.org.eclipse.jetty.ee10.servlet.ServletHolder(servlet), "/*")
        jetty = jvm.org.eclipse.jetty.server.Server(jvm.java.net.InetSocketAddress("127.0.0.1", port))
        jetty.setHandler(context)
        jetty.start()
        return jetty
