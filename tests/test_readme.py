"""The README: the commands that it shows make a table in the UI."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.lakes import free_port

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
PROJECT = README.partition("## A project in five commands")[2].partition("\n## ")[0]
TABLE_QUERY = "{assetNodes {assetKey {path} assetMaterializations(limit: 1) {metadataEntries {label}}}}"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PROJECT, re.DOTALL | re.MULTILINE)


def run(command: str, directory: Path) -> str:
    """Run a command in the environment of the tests, where no package has to be installed."""
    name, *arguments = command.split()
    script = Path(sys.executable).with_name(name)
    done = subprocess.run(
        [script, *arguments], cwd=directory, env=environment(directory), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout + done.stderr


def environment(directory: Path) -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    others = {"PYTHONPATH": str(directory / "src"), "PYTHONWARNINGS": "ignore", "CI": "true"}
    return {**os.environ, **others, "PATH": path, "DAGSTER_HOME": str(directory)}


def nodes(port: int) -> list[dict[str, Any]]:
    """Return the assets that the UI shows. Wait until it answers."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/graphql",
        json.dumps({"query": TABLE_QUERY}).encode(),
        {"Content-Type": "application/json"},
    )
    for _ in range(120):
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]["assetNodes"]
        except (OSError, urllib.error.URLError):
            found = []
        if found:
            return found
        time.sleep(0.5)
    pytest.fail("the UI shows no asset")


@pytest.mark.full
def test_the_five_commands_make_a_table_in_the_ui(tmp_path: Path) -> None:
    install, create, install_project, scaffold, develop = blocks("sh")[0].splitlines()
    assert install.startswith("pip install ")
    assert install_project == "pip install -e weather && cd weather"
    assert develop == "dg dev"
    run(create, tmp_path)
    project = tmp_path / "weather"
    run(scaffold, project)
    (path,) = re.findall(r"save an asset as `(\S+)`", PROJECT)
    (project / path).write_text(blocks("python")[0], encoding="utf-8")
    assert "All definitions loaded successfully" in run("dg check defs", project)
    (launch,) = re.findall(r"`(dg launch [^`]+)`", PROJECT)
    run(launch.replace("\n", " "), project)

    port, script = free_port(), Path(sys.executable).with_name("dg")
    command = [str(script), "dev", "--port", str(port)]
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(
            command, cwd=project, env=environment(project), stdout=log, stderr=log, start_new_session=True
        ) as server,
    ):
        try:
            (node,) = nodes(port)
        finally:
            os.killpg(server.pid, signal.SIGTERM)
    assert node["assetKey"] == {"path": ["temperatures"]}
    (materialization,) = node["assetMaterializations"]
    assert {"label": "iceberg/snapshot_id"} in materialization["metadataEntries"]
