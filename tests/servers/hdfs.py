"""HDFS: Hadoop's own name node and data node in one process, as `MiniDFSCluster` starts them."""

from pathlib import Path
from typing import Final

from tests.lakes import free_port
from tests.servers.gateway import JavaProcess
from tests.servers.jars import fetched

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


class HdfsServer:
    """A file system that may be killed and started again at its port; its files survive.

    Args:
        directory: Of its blocks and its log.
    """

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self._directory = directory
        self._java: JavaProcess | None = None
        self._start(is_first=True)

    @property
    def uri(self) -> str:
        return f"hdfs://localhost:{self.port}"

    def start(self) -> None:
        """Start it again, with what it had."""
        self._start(is_first=False)

    def _start(self, *, is_first: bool) -> None:
        log = self._directory / "server.log"
        self._java = JavaProcess(self._directory, log, fetched("hdfs", _IVY))
        try:
            self._serve(self._java, is_first=is_first)
        except BaseException:
            self.kill()
            raise

    def _serve(self, running: JavaProcess, *, is_first: bool) -> None:
        jvm = running.jvm
        configuration = jvm.org.apache.hadoop.hdfs.HdfsConfiguration()
        configuration.set("hdfs.minidfs.basedir", str(self._directory / "data"))
        configuration.set("dfs.namenode.safemode.extension", "0")
        builder = jvm.java.lang.Class.forName("org.apache.hadoop.hdfs.MiniDFSCluster$Builder")
        constructor = next(item for item in builder.getConstructors() if item.getParameterCount() == 1)
        arguments = running.gateway.new_array(jvm.java.lang.Object, 1)
        arguments[0] = configuration
        cluster = constructor.newInstance(arguments).nameNodePort(self.port).numDataNodes(1).format(is_first).build()
        cluster.waitActive()

    def kill(self) -> None:
        """End the process, and with it both nodes."""
        if self._java is not None:
            self._java.kill()
            self._java = None
