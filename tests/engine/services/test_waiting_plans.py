"""Which compactions wait, by the name under which `compact` speaks of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_table import LiveTable

import lakelatch
from lakelatch.errors import InvalidRequest


def test_plans_wait_until_they_are_carried_out(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "table")
    table.write([(1, 1, "a")])
    assert lakelatch.waiting_plans(str(table.root)) == []
    plan = lakelatch.schedule_compaction(str(table.root))
    assert plan is not None and lakelatch.waiting_plans(str(table.root)) == [plan]
    table.execute(plan)
    assert lakelatch.waiting_plans(str(table.root)) == []


def test_where_there_is_no_table_nothing_waits_unsaid(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="there is no table"):
        lakelatch.waiting_plans(str(tmp_path))


def test_what_docstrings_of_the_function_api_name_can_be_imported() -> None:
    assert lakelatch.compact.__doc__ is not None and "`waiting_plans`" in lakelatch.compact.__doc__
    assert "waiting_plans" in lakelatch.__all__
