"""Revisions of a Git repository, and commands that run with their code."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dagster_iceberg_spark.errors import ConfigurationError
from dagster_iceberg_spark.features.code_changes.plan.code_state import AssetCode, CodeState


@dataclass(frozen=True, slots=True)
class Range:
    """Two revisions of a repository.

    Args:
        root: The directory of the repository.
        before: The commit with the old code.
        after: The commit with the new code, or None for the files as they are.
    """

    root: Path
    before: str
    after: str | None


def parse_range(text: str, directory: Path) -> Range:
    """Return the revisions of `BASE..HEAD`, of `BASE...HEAD`, which begins where the two part, or of `BASE`.

    Without HEAD, and if HEAD is what is checked out, the new code is that of the files, changes without a commit among
    them.

    Raises:
        ConfigurationError: There is no repository, or a revision is unknown.
    """
    root = Path(_git(directory, "rev-parse", "--show-toplevel", action=text)).resolve()
    base, dots, head = text.partition("...") if "..." in text else text.partition("..")
    after = _commit(root, head or "HEAD")
    before = _commit(root, base)
    if dots == "...":
        before = _git(root, "merge-base", before, after, action=f"compare {text}")
    is_checked_out = not head or after == _commit(root, "HEAD")
    return Range(root, before, None if is_checked_out else after)


def _commit(root: Path, revision: str) -> str:
    return _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}", action=revision)


def _git(directory: Path, *arguments: str, action: str, **environment: str) -> str:
    command = ["git", "-C", str(directory), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)  # noqa: S603
    except OSError as error:
        raise _refused(action, "the program `git`", str(error)) from error
    if done.returncode:
        found = last_line(done.stderr) if done.stderr else "none"
        raise _refused(action, f"a revision of the Git repository with {directory}", found)
    return done.stdout.strip()


def _refused(subject: str, expected: str, found: str) -> ConfigurationError:
    return ConfigurationError.refusing("look up", subject, expected=expected, found=found)


@dataclass(frozen=True, slots=True)
class Checkout:
    """The files of a revision. Code locations are loaded from it by the options that name them in the repository.

    Args:
        root: The directory of the repository.
        directory: The directory with the files of the revision.
    """

    root: Path
    directory: Path

    def _inside(self, path: Path) -> Path:
        absolute = path.resolve()
        if not absolute.is_relative_to(self.root):
            raise ConfigurationError.refusing(
                "load", str(path), expected=f"a code location in the Git repository {self.root}", found="one elsewhere"
            )
        return self.directory / absolute.relative_to(self.root)

    def arguments(self, options: Mapping[str, Any]) -> list[str]:
        """Return the command line for the options that name code locations, with the paths of this revision."""
        named = {"--module": options["module"], "--attribute": options["attribute"]}
        paths = [("--workspace", path) for path in options["workspace"]]
        paths += [("--python-file", options["python_file"]), ("--working-directory", options["working_directory"])]
        given = [*named.items(), *((flag, self._inside(path)) for flag, path in paths if path is not None)]
        return [f"{flag}={value}" for flag, value in given if value is not None]

    def run(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run Python with the code of this revision, in the working directory of this process."""
        inside = (Path(entry).resolve() for entry in sys.path)
        own = (self._inside(path) for path in inside if path.is_relative_to(self.root))
        tracked = (path for path in own if path.exists() and path.resolve() == path)  # else linked, such as `.venv`
        paths = [*map(str, tracked), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        return subprocess.run(  # noqa: S603 - this interpreter
            [sys.executable, *arguments], capture_output=True, text=True, env=environment, check=False
        )

    def state(self, options: Mapping[str, Any], revision: str) -> CodeState:
        """Return the assets of the revision.

        Raises:
            ConfigurationError: A code location cannot be loaded from it.
        """
        with tempfile.TemporaryDirectory(prefix="code-") as scratch:
            output = Path(scratch) / "assets.json"
            own = [f"--root={self.directory}", f"--output={output}", *self.arguments(options)]
            done = self.run(["-m", f"{__package__}.asset_code", *own])
            if done.returncode:
                raise ConfigurationError.refusing(
                    "load",
                    f"the code location of {revision}",
                    expected="one that can be loaded from the files of the revision alone",
                    found=last_line(done.stderr),
                )
            assets = [AssetCode.of(item) for item in json.loads(output.read_text())]
        return {asset.key: asset for asset in assets}


def last_line(text: str) -> str:
    """Return the last line that a process has printed."""
    lines = text.strip().splitlines()
    return lines[-1].removeprefix("Error: ") if lines else "no message"


@contextmanager
def checked_out(root: Path, revision: str | None) -> Iterator[Checkout]:
    """Yield the files of a revision, or those of the repository itself if it is None. The repository stays as it is.

    What Git ignores, such as `.env` or a lake, is linked: it is the same for each revision.
    """
    if revision is None:
        yield Checkout(root, root)
        return
    with tempfile.TemporaryDirectory(prefix="revision-") as scratch:
        index, directory = f"{scratch}/index", Path(scratch).resolve() / "files"
        _git(root, "read-tree", revision, action=revision, GIT_INDEX_FILE=index)
        _git(root, "checkout-index", "--all", f"--prefix={directory}/", action=revision, GIT_INDEX_FILE=index)
        ignored = _git(
            root, "ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z", action=revision
        )
        for name in filter(None, ignored.split("\0")):
            link = directory / name.rstrip("/")
            if link.name != "__pycache__" and link.parent.exists() and not link.exists():
                link.symlink_to(root / name)
        yield Checkout(root, directory)
