"""Java, which Spark runs on."""

from pathlib import Path

import pytest

from dagster_iceberg_spark.errors import SparkEnvironmentError
from dagster_iceberg_spark.spark.session.runtime import require_java

JAVAS = {
    "none": (None, "no `java`"),
    "old": ('openjdk version "11.0.2" 2019-01-15', "Java 11"),
    "ancient": ('java version "1.8.0_292"', "Java 8"),
}


@pytest.mark.parametrize(("banner", "found"), JAVAS.values(), ids=list(JAVAS))
def test_java_that_is_missing_or_too_old_is_named(
    banner: str | None, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if banner is not None:
        java = tmp_path / "bin" / "java"
        java.parent.mkdir()
        java.write_text(f"#!/bin/sh\necho '{banner}' >&2\n")
        java.chmod(0o755)
    with pytest.raises(SparkEnvironmentError, match=found) as caught:
        require_java()
    assert "openjdk-17" in str(caught.value)
