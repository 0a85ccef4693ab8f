"""That tests write through the builder in `tests/support/table.py`, so that another way of writing moves no test."""

from __future__ import annotations

from typing import Any

import pytest

PIPELINE = (
    "lakelatch.engine.write",
    "lakelatch.engine.writing",
    "lakelatch.transactions.attempts.attempt",
    "lakelatch.transactions.attempts.commit",
)
#: The simulation, whose tasks write no rows, and tests of the very functions that they call.
PAST_THE_BUILDER = {
    "tests/faults/fault_writer.py",
    *(
        f"tests/simulation/{name}.py"
        for name in ("actors", "batched", "crowd", "loads", "mistakes_of_groups", "planted", "shelf", "tellers")
    ),
    *(f"tests/engine/table/test_{name}.py" for name in ("learnt_columns", "recorded_locks")),
    *(f"tests/engine/write/test_{name}.py" for name in ("relocation", "requests", "staying_open")),
    "tests/format/merge/test_column_groups.py",
    "tests/interop/test_hudi_rs.py",
    "tests/spark/test_early_conflicts.py",
    "tests/spark/write/bulk_loads/test_sorted_runs.py",
    "tests/spark/write/refusals/test_refused_rows.py",
    *(f"tests/spark/write/test_{name}.py" for name in ("batches", "overwrite")),
    "tests/support/storages/opened.py",
    "tests/transactions/early/test_detection.py",
    "tests/transactions/marker_server/test_server.py",
    *(f"tests/transactions/test_{name}.py" for name in ("attempt", "foreign", "group_ends")),
}


def is_of_the_pipeline(name: str) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in PIPELINE)


@pytest.mark.parametrize("name", ["lakelatch.engine.write.commit.commit_files", "lakelatch.engine.writing"])
def test_an_import_of_the_pipeline_is_seen(name: str) -> None:
    assert is_of_the_pipeline(name) and not is_of_the_pipeline("lakelatch.engine.options.write")


def test_tests_write_through_the_builder(source_tree: Any) -> None:
    found = {
        source.name
        for source in source_tree.everything
        if source.name.startswith("tests/") and any(is_of_the_pipeline(name) for name in source.imports)
    }
    assert "tests/support/table.py" in found
    assert found - {"tests/support/table.py"} <= PAST_THE_BUILDER
