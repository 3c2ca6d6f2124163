"""HDFS: Hadoop's own name node and data node in one process, as `MiniDFSCluster` starts them."""

import os
import subprocess
from pathlib import Path
from typing import Any, Final

import pyspark
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway

from tests.conftest import free_port
from tests.servers.jars import fetched, java

HADOOP: Final = "3.4.2"
"""The version that pyspark ships clients of."""
_IVY: Final = f"""\
<ivy-module version="2.0">
  <info organisation="tests" module="hdfs"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.hadoop" name="hadoop-client-minicluster" rev="{HADOOP}" conf="default->master"
      transitive="false"/>
    <dependency org="org.mockito" name="mockito-core" rev="2.28.2" conf="default->master" transitive="false"/>
    <dependency org="net.bytebuddy" name="byte-buddy" rev="1.9.10" conf="default->master" transitive="false"/>
    <dependency org="net.bytebuddy" name="byte-buddy-agent" rev="1.9.10" conf="default->master" transitive="false"/>
    <dependency org="org.objenesis" name="objenesis" rev="2.6" conf="default->master" transitive="false"/>
    <dependency org="junit" name="junit" rev="4.13.2" conf="default->master" transitive="false"/>
  </dependencies>
</ivy-module>
"""
_OPENED: Final = ("java.net", "java.lang", "java.util")


class HdfsServer:
    """A file system that may be killed and started again at its port; its files survive.

    Args:
        directory: Of its blocks and its log.
    """

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self._directory = directory
        self._process: subprocess.Popen[str] | None = None
        self._gateway: JavaGateway | None = None
        self._start(is_first=True)

    @property
    def uri(self) -> str:
        return f"hdfs://localhost:{self.port}"

    def start(self) -> None:
        """Start it again, with what it had."""
        self._start(is_first=False)

    def _start(self, *, is_first: bool) -> None:
        classes = [*map(str, fetched("hdfs", _IVY)), f"{Path(pyspark.__file__).parent / 'jars'}/*"]
        options = ["-Xmx512m", *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED)]
        log = self._directory / "server.log"
        with log.open("a") as output:
            self._process = subprocess.Popen(
                [java(), *options, "-cp", os.pathsep.join(classes), "py4j.GatewayServer", "--die-on-broken-pipe", "0"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd=self._directory,
                text=True,
            )
        assert self._process.stdout is not None
        port = self._process.stdout.readline().strip()
        if not port:
            pytest.fail(f"the process of HDFS died:\n{log.read_text()[-4000:]}")
        # Nothing is told to a server that was killed: Java objects live as long as it does.
        parameters = GatewayParameters(port=int(port), enable_memory_management=False)
        self._gateway = JavaGateway(gateway_parameters=parameters)
        jvm: Any = self._gateway.jvm
        configuration = jvm.org.apache.hadoop.hdfs.HdfsConfiguration()
        configuration.set("hdfs.minidfs.basedir", str(self._directory / "data"))
        configuration.set("dfs.namenode.safemode.extension", "0")
        builder = jvm.java.lang.Class.forName("org.apache.hadoop.hdfs.MiniDFSCluster$Builder")
        constructor = next(item for item in builder.getConstructors() if item.getParameterCount() == 1)
        arguments = self._gateway.new_array(jvm.java.lang.Object, 1)
        arguments[0] = configuration
        cluster = constructor.newInstance(arguments).nameNodePort(self.port).numDataNodes(1).format(is_first).build()
        cluster.waitActive()

    def kill(self) -> None:
        """End the process, and with it both nodes."""
        if self._gateway is not None:
            self._gateway.close()
            self._gateway = None
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process.kill()
            self._process.wait()
            self._process = None
