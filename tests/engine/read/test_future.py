"""A moment that is still to come cannot be read: what completes until then would change the answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_table import LiveTable

from lakelatch.engine.read.plan import plan_read
from lakelatch.errors import InvalidRequest
from lakelatch.testing.clock import ManualSystem
from lakelatch.timegen.instant_time import to_instant, to_ms

AS_OF = "as.of.instant"
END = "hoodie.datasource.read.end.instanttime"
INCREMENTAL = {
    "hoodie.datasource.query.type": "incremental",
    "hoodie.datasource.read.begin.instanttime": "00000000000000000",
}


@pytest.mark.parametrize("option, more", [(AS_OF, {}), (END, INCREMENTAL)])
def test_a_moment_to_come_is_refused_by_its_name(tmp_path: Path, option: str, more: dict[str, str]) -> None:
    table = LiveTable(tmp_path / "table")
    completion = to_ms(table.write([(1, 1, "a")]).completion)
    system = ManualSystem(completion + 60_000)
    for ahead_ms in (0, -1):
        given = to_instant(completion + 60_000 + ahead_ms)
        assert plan_read(str(table.root), {**more, option: given}, system).slices
    given = to_instant(completion + 60_001)
    with pytest.raises(InvalidRequest, match="is in the future") as caught:
        plan_read(str(table.root), {**more, option: given}, system)
    for text in (f"{option}={given}", to_instant(completion), to_instant(completion + 60_000), "leave the option out"):
        assert text in caught.value.message


def test_times_of_a_table_that_is_ahead_of_the_clock_are_no_future(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "table")
    first, second = (table.write([(1, number, "a")]).completion for number in (1, 2))
    behind = ManualSystem(to_ms(first) - 60_000)
    for time in (first, second):
        assert plan_read(str(table.root), {AS_OF: time}, behind).slices
    with pytest.raises(InvalidRequest, match=second):
        plan_read(str(table.root), {AS_OF: to_instant(to_ms(second) + 1)}, behind)


def test_a_moment_before_an_empty_table_s_first_write_may_have_passed(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "table")
    system = ManualSystem(to_ms("20261122120000000"))
    assert plan_read(str(table.root), {AS_OF: "2026-11-22 11:59:59"}, system).slices == ()
    with pytest.raises(InvalidRequest, match="latest time is none"):
        plan_read(str(table.root), {AS_OF: "2026-11-22 12:00:00"}, system)
