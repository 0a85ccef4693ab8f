"""The commands of table services in an environment that has no PySpark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import lakelatch

WITHOUT_SPARK = """
import sys
sys.modules["pyspark"] = None
from lakelatch.console.main import main
sys.exit(main(sys.argv[1:]))
"""
OPTIONS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.bucket.index.num.buckets": 1,
    "hoodie.write.lock.provider": "filesystem",
    "lakelatch.rewrite.automatic": "false",
}


@pytest.fixture
def table(tmp_path: Path) -> lakelatch.ArrowTable:
    made = lakelatch.ArrowTable(str(tmp_path / "orders"), OPTIONS)
    for number in range(3):
        made.upsert(pa.table({"id": ["b", "a"], "value": [number, number]}))
    return made


def run(table: lakelatch.ArrowTable, *command: str) -> dict[str, list[dict[str, object]]]:
    verb, *more = command
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK, verb, table.path, *more, "--json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[dict[str, object]]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("verb", ["compact", "cluster"])
def test_file_groups_are_rewritten_in_this_process(table: lakelatch.ArrowTable, verb: str) -> None:
    (result,) = run(table, verb, "--cores", "0")["completed"]
    assert result["rows_written"] == 2
    assert table.to_arrow().sort_by("id").to_pydict() == {"id": ["a", "b"], "value": [2, 2]}


def test_with_nothing_to_do_no_spark_is_started(table: lakelatch.ArrowTable) -> None:
    run(table, "compact", "--cores", "0")
    assert run(table, "compact") == {"completed": [], "waiting": []}


def test_cleans_and_archives_ask_for_no_spark(table: lakelatch.ArrowTable) -> None:
    run(table, "compact", "--cores", "0")
    table.upsert(pa.table({"id": ["a"], "value": [7]}))
    run(table, "compact", "--cores", "0")
    (clean,) = run(table, "clean", "-o", "hoodie.cleaner.commits.retained=1")["completed"]
    assert clean["files"]
    assert "instants" in run(table, "archive")
