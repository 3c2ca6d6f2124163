"""A JVM whose classes are called from here, for servers that have no program of their own to start."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyspark
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway

from tests.servers.jars import java

OPENED: Final = ("java.net", "java.lang", "java.util")
"""What DataNucleus and Hadoop look into."""


class JavaProcess:
    """A JVM with pyspark's jars, at the other end of a gateway of py4j.

    Args:
        directory: Where it runs.
        log: What it says is added there.
        classes: What comes before pyspark's jars.
    """

    def __init__(self, directory: Path, log: Path, classes: Sequence[Path]) -> None:
        path = os.pathsep.join([*map(str, classes), f"{Path(pyspark.__file__).parent / 'jars'}/*"])
        options = ["-Xmx512m", *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED), "-cp", path]
        with log.open("a") as output:
            self.process = subprocess.Popen(
                [java(), *options, "py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd=directory,
                text=True,
            )
        assert self.process.stdout is not None
        port, token = (self.process.stdout.readline().strip() for _ in range(2))
        if not token:
            pytest.fail(f"the JVM died:\n{log.read_text()[-4000:]}")
        # Nothing is told to a server that was killed: Java objects live as long as it does.
        parameters = GatewayParameters(port=int(port), auth_token=token, enable_memory_management=False)
        self.gateway = JavaGateway(gateway_parameters=parameters)

    @property
    def jvm(self) -> Any:
        return self.gateway.jvm

    def kill(self) -> None:
        self.gateway.close()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.process.kill()
        self.process.wait()
