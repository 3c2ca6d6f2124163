"""A Hive Metastore from the jars that pyspark ships, over an embedded Derby database, listening on the loopback alone.

`HiveMetaStore`, the main class, listens on every interface and has no setting for it; and Derby's tables of locks are
made by nothing but Hive's own tests. So the same handler is put into a Thrift server here, from Python, through a
gateway of py4j.
"""

from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

from tests.lakes import free_port, wait_for_port
from tests.servers.gateway import JavaProcess

START_SECONDS: Final = 120
LOG4J: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.err.ref = err
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d %p %c: %m%n%ex
"""


class HiveServer:
    """A metastore that may be killed and started again at its port; its data survive.

    Args:
        directory: Of the database, the settings and the log.
    """

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.warehouse = directory / "warehouse"
        self._directory = directory
        self._log = directory / "server.log"
        self._java: JavaProcess | None = None
        self._write_settings()
        self.start()

    @property
    def uri(self) -> str:
        return f"thrift://127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._java is not None

    def start(self) -> None:
        self._java = JavaProcess(self._directory, self._log, [self._directory])
        try:
            self._serve(self._java)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill it, and with it every connection; its locks stay, as those of any metastore."""
        if self._java is not None:
            self._java.kill()
            self._java = None

    close = stop

    def expire_locks(self) -> None:
        """Do now what the metastore's housekeeping does from time to time: end locks without a heartbeat."""
        assert self._java is not None
        jvm = self._java.jvm
        jvm.org.apache.hadoop.hive.metastore.txn.TxnUtils.getTxnStore(self._conf(jvm)).performTimeOuts()

    def _write_settings(self) -> None:
        settings = {
            "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={self._directory}/metastore_db;create=true",
            "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
            "datanucleus.schema.autoCreateAll": "true",
            "datanucleus.connectionPoolingType": "HikariCP",  # pyspark ships no other
            "hive.metastore.schema.verification": "false",
            "hive.metastore.warehouse.dir": f"file://{self.warehouse}",
            "hive.txn.timeout": "10s",
        }
        properties = "".join(
            f"<property><name>{name}</name><value>{escape(value)}</value></property>\n"
            for name, value in settings.items()
        )
        (self._directory / "hive-site.xml").write_text(f"<configuration>\n{properties}</configuration>\n")
        (self._directory / "log4j2.properties").write_text(LOG4J)

    def _serve(self, running: JavaProcess) -> None:
        jvm = running.jvm
        metastore, thrift = jvm.org.apache.hadoop.hive.metastore, jvm.org.apache.thrift
        handler = metastore.HiveMetaStore.HMSHandler("metastore", self._conf(jvm), False)
        handler = metastore.HiveMetaStore.newRetryingHMSHandler(handler, self._conf(jvm))
        if not (self._directory / "locks_are_there").exists():
            metastore.txn.TxnDbUtil.prepDb(self._conf(jvm))
            (self._directory / "locks_are_there").touch()
        address = jvm.java.net.InetSocketAddress("127.0.0.1", self.port)
        arguments = thrift.server.TThreadPoolServer.Args(thrift.transport.TServerSocket(address))
        server = thrift.server.TThreadPoolServer(arguments.processor(metastore.TSetIpAddressProcessor(handler)))
        serving = jvm.java.beans.EventHandler.create(jvm.java.lang.Class.forName("java.lang.Runnable"), server, "serve")
        jvm.java.lang.Thread(serving).start()
        wait_for_port(self.port, running.process, self._log, seconds=START_SECONDS)

    @staticmethod
    def _conf(jvm: Any) -> Any:
        return jvm.org.apache.hadoop.hive.conf.HiveConf()
