"""Spark sessions for the command's own processes: small, quiet, on this machine."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lakelatch.errors import InvalidRequest
from lakelatch.plugins import ensure_installed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_session(
    name: str, cores: int = 1, memory_mb: int = 640, progress: bool = False, log: Path | None = None
) -> SparkSession:
    """A local session. `InvalidRequest` with the way to get PySpark or a Java if there is none.

    With `log`, what the Java process has to say goes to that file.
    """
    ensure_installed("pyspark", "spark", "a Spark session")
    check_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{cores}]").appName(name)
    settings = {
        "spark.driver.memory": f"{memory_mb}m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(progress).lower(),
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _errors_to(log):
        return builder.getOrCreate()


@contextmanager
def _errors_to(log: Path | None) -> Iterator[None]:
    """Standard error of processes started inside goes to a file: Java inherits it when it starts."""
    if log is None:
        yield
        return
    kept = os.dup(2)
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def check_java() -> None:
    """Whether Spark can find a Java at all; Spark itself says which version it needs."""
    home = os.environ.get("JAVA_HOME")
    found = os.path.exists(os.path.join(home, "bin", "java")) if home else shutil.which("java") is not None
    if not found:
        raise InvalidRequest(
            "Spark needs Java 17 or newer, and there is none on the PATH or in JAVA_HOME: on Debian or Ubuntu "
            "apt-get install openjdk-17-jre-headless, on macOS brew install openjdk@17 and set JAVA_HOME"
        )
