"""Which compactions wait, by the name under which `compact` speaks of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_table import LiveTable

import lakelatch
from lakelatch.errors import InvalidRequest
from lakelatch.failpoints import calling


def test_plans_wait_until_they_are_carried_out(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "table")
    table.write([(1, 1, "a")])
    assert lakelatch.waiting_plans(str(table.root)) == []
    plan = lakelatch.schedule_compaction(str(table.root))
    assert plan is not None and lakelatch.waiting_plans(str(table.root)) == [plan]
    table.execute(plan)
    assert lakelatch.waiting_plans(str(table.root)) == []


def test_plans_of_all_services_are_listed_until_they_end(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "table", buckets=2)
    path = str(table.root)
    table.write([(number, 1, "a") for number in range(9)])
    assert len(lakelatch.plans(path)) == 0
    compaction = lakelatch.schedule_compaction(path, {"lakelatch.service.cancellable": True})
    assert compaction is not None
    (row,) = lakelatch.plans(path)
    assert row.pop("planned").strftime("%Y%m%d%H%M%S") == compaction[:14]
    assert row == {
        "instant": compaction,
        "service": "compaction",
        "file_groups": 2,
        "begun": False,
        "cancellable": True,
    }
    assert f"<td>{compaction}</td><td>compaction</td>" in lakelatch.plans(path)._repr_html_()
    begun = list[bool]()
    with calling(lambda _: begun.append(lakelatch.plans(path)[0]["begun"]), ["compact.before_commit"]):
        table.execute(compaction)
    assert begun == [True] and len(lakelatch.plans(path)) == 0


def test_where_there_is_no_table_nothing_waits_unsaid(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="there is no table"):
        lakelatch.waiting_plans(str(tmp_path))
    with pytest.raises(InvalidRequest, match="there is no table"):
        lakelatch.plans(str(tmp_path))


def test_what_docstrings_of_the_function_api_name_can_be_imported() -> None:
    assert lakelatch.compact.__doc__ is not None and "`waiting_plans`" in lakelatch.compact.__doc__
    assert "waiting_plans" in lakelatch.__all__
