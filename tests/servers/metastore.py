"""A server of a Hive Metastore's protocol in this process, and one that passes calls on, or loses them."""

import socketserver
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias

from hive_metastore.ThriftHiveMetastore import Client, Processor
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TTransportException

Lost: TypeAlias = Literal["request", "answer"]
COMMIT: Final = "alter_table_with_environment_context"
"""What both engines commit by."""


class MetastoreProtocol:
    """Answers with what the methods of an object return, one object for each connection.

    Args:
        make: Makes the object.
    """

    def __init__(self, make: Callable[[], object]) -> None:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                connection = TSocket()
                connection.setHandle(self.request)
                protocol = TBinaryProtocol(TBufferedTransport(connection))
                with suppress(TTransportException, OSError):
                    processor = Processor(make())
                    while True:
                        processor.process(protocol, protocol)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True  # clients keep their connections
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    @property
    def uri(self) -> str:
        return f"thrift://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class FaultyMetastore(MetastoreProtocol):
    """Passes all on to a metastore, save for what a test lets it lose; whoever loses something is hung up on.

    Args:
        port: The metastore's.

    Attributes:
        lost: What has been lost.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._losses: dict[str, tuple[Lost, int]] = {}
        self._meetings: dict[str, threading.Barrier] = {}
        self._lock = threading.Lock()
        self.lost: Counter[str] = Counter()
        super().__init__(self._passing_on)

    def lose(self, what: Lost, method: str, *, times: int = 1) -> None:
        """Lose the next requests of a method, or their answers."""
        self.lost.clear()
        self._losses[method] = (what, times)

    def gather(self, method: str, requests: int, *, seconds: float) -> threading.Barrier:
        """Pass requests of a method on when there are so many of them; it breaks where there are not in that time."""
        self._meetings[method] = threading.Barrier(requests, timeout=seconds)
        return self._meetings[method]

    def heal(self) -> None:
        self._losses.clear()

    def _passing_on(self) -> object:
        transport = TBufferedTransport(TSocket("127.0.0.1", self._port))
        transport.open()
        client = Client(TBinaryProtocol(transport))

        class PassingOn:
            def __getattr__(_, name: str) -> Callable[..., Any]:  # noqa: N805 - `self` is the server
                def call(*arguments: Any) -> Any:
                    if name in self._meetings:
                        with suppress(threading.BrokenBarrierError):
                            self._meetings[name].wait()
                    lost = self._loses(name)
                    if lost != "request":
                        answer = getattr(client, name)(*arguments)
                    if lost is not None:
                        raise TTransportException(message=f"lost the {lost} of {name}")
                    return answer

                return call

        return PassingOn()

    def _loses(self, method: str) -> Lost | None:
        with self._lock:
            what, left = self._losses.get(method, ("request", 0))
            if not left:
                return None
            self._losses[method] = (what, left - 1)
            self.lost[method] += 1
            return what
