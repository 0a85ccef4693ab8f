"""How far work of this process is: told between two files, shown where somebody looks, and harmless."""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow as pa
import pytest

from lakelatch.engine.arrow import ArrowTable
from lakelatch.engine.run.executor import HERE
from lakelatch.progress import Counting, Progress, _TerminalLine, count, counted, own_line, told_to
from lakelatch.testing.clock import ManualSystem

ROWS = pa.table({"id": list(range(100)), "v": ["x"] * 100})


def test_a_handler_is_told_of_writes_and_services(tmp_path: Path) -> None:
    seen: list[Progress] = []
    table = ArrowTable.create(tmp_path / "trips", "id long, v string", key="id", buckets=3)
    with told_to(seen.append):
        written = table.upsert(ROWS)
        last = seen[-1]
        assert last.done and (last.rows, last.files) == (100, 3)
        assert str(last) == f"lakelatch: upsert into 'trips' ({written.instant}): done, 100 rows in 3 files, 0 s"
        seen.clear()
        (compacted,) = table.compact()
    (last,) = [one for one in seen if "compaction of" in one.what and one.done]
    assert (last.rows, last.files, last.tasks_done, last.tasks) == (100, 3, 3, 3) and compacted.instant in last.what
    seen.clear()
    table.upsert(ROWS)
    assert seen == []  # nobody is told any more


def test_long_work_is_told_of_twice_a_second() -> None:
    clock, seen = ManualSystem(), list[str]()
    with told_to(lambda progress: seen.append(str(progress))), counted("work", tasks=4, system=clock):
        for _ in range(4):
            clock.advance(0.3)
            with counted("a part of it"):  # is counted by the whole
                count(rows=10, files=1)
            count(tasks=1)
    parts = [f"work: {done} of 4 tasks, {rows} rows in {files} files, 1 s" for done, rows, files in ((1, 20, 2),)]
    assert seen == [*parts, "work: 3 of 4 tasks, 40 rows in 4 files, 1 s", "work: done, 40 rows in 4 files, 1 s"]
    assert HERE.map(lambda thing, token: None, [1, 2], Progress, "nothing that anybody looks at") == []


def test_a_terminal_has_a_line_and_a_pipe_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert own_line() is None
    line = _TerminalLine()
    for progress in (Progress("work", 0, 9, 0.5), Progress("work", 3, 9, 1.5), Progress("work", 9, 9, 2.0, done=True)):
        line.show(progress)
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "\r\x1b[2Kwork: 3 of 9 tasks, 2 s\r\x1b[2K")
    _TerminalLine().show(Progress("short", 1, 1, 0.1, done=True))
    assert capsys.readouterr().err == ""


def test_a_handler_that_fails_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: Progress) -> None:
        raise ValueError("nowhere to draw")

    counting = Counting(broken, "work", 0, ManualSystem())
    with caplog.at_level(logging.WARNING, "lakelatch"):
        counting.tell()
        counting.tell(done=True)
    assert [one for one in caplog.messages if "nowhere to draw" in one] == caplog.messages[:1] == caplog.messages
