from __future__ import annotations

from pathlib import Path

import pytest
from lock_history import (
    FAILED,
    GRANTED,
    HELD,
    LOST,
    RELEASED,
    Entry,
    Recorder,
    problems_in,
    read_history,
)

from lakelatch.locks.contract import LockScope
from lakelatch.locks.in_process import InProcessLockProvider
from lakelatch.testing.clock import ManualSystem


def seen(client: str, token: int, granted: tuple[int, int], held: int = 0, *more: Entry) -> list[Entry]:
    """A grant that was called and returned at these times, and believed in until `held`."""
    entries = [Entry(GRANTED, client, "k", token, *granted)]
    if held:
        entries.append(Entry(HELD, client, "k", token, held, held))
    return [*entries, *more]


def test_a_good_history_is_good() -> None:
    first = seen("a", 1, (0, 10), 50, Entry(RELEASED, "a", "k", 1, 60, 70, True))
    second = seen("b", 2, (5, 65), 90, Entry(LOST, "b", "k", 2, 95, 95), Entry(RELEASED, "b", "k", 2, 99, 99, False))
    third = seen("c", 3, (20, 120), 130)
    other_key = [Entry(GRANTED, "d", "other", 1, 20, 30), Entry(HELD, "d", "other", 1, 40, 41)]
    assert problems_in([*third, *first, *other_key, *second, Entry(FAILED, "e", "k", 0, 1, 2)]) == []


@pytest.mark.parametrize(
    ("history", "problem"),
    [
        (seen("a", 1, (0, 10), 50) + seen("b", 2, (5, 40), 60), "both held"),
        (seen("a", 1, (0, 10), 50) + seen("b", 2, (5, 20), 30), "both held 'k' for 0.0 ms"),
        (seen("a", 7, (0, 10)) + seen("b", 7, (20, 30)), "granted twice"),
        (seen("a", 7, (0, 10)) + seen("b", 6, (20, 30)), "after 7 had been granted"),
        (seen("a", 7, (0, 10), 15) + seen("b", 6, (5, 30), 40), "was held after token 7"),
        (seen("a", 1, (0, 10), 30, Entry(LOST, "a", "k", 1, 20, 20)), "valid again"),
        (seen("a", 1, (0, 10), 30, Entry(RELEASED, "a", "k", 1, 20, 21, True)), "valid again"),
        (
            seen("a", 1, (0, 10), 0, Entry(LOST, "a", "k", 1, 20, 20), Entry(RELEASED, "a", "k", 1, 30, 31, True)),
            "claims to have freed",
        ),
    ],
)
def test_a_bad_history_is_found(history: list[Entry], problem: str) -> None:
    found = problems_in(history)
    assert any(problem in text for text in found), found


def test_a_late_answer_that_nobody_acted_upon_is_no_overlap() -> None:
    paused = seen("a", 1, (0, 100), 0, Entry(LOST, "a", "k", 1, 101, 101))
    assert problems_in(paused + seen("b", 2, (50, 60), 120)) == []


def test_what_is_recorded_can_be_read(tmp_path: Path) -> None:
    system = ManualSystem()
    provider = InProcessLockProvider(LockScope(f"file://{tmp_path}", {}))
    recorder = Recorder(tmp_path / "a", "a", system)
    lease = recorder.acquire(provider, "k", 0)
    assert lease is not None
    assert recorder.acquire(provider, "k", 0) is None
    system.advance(1)
    assert recorder.look(lease) and recorder.release(lease) and not recorder.look(lease)
    assert recorder.release(lease) is False
    (tmp_path / "b").write_text('{"kind": "gra')
    entries = read_history([tmp_path / "a", tmp_path / "b"])
    assert [entry.kind for entry in entries] == [GRANTED, FAILED, HELD, RELEASED, LOST, RELEASED]
    assert [entry.result for entry in entries if entry.kind == RELEASED] == [True, False]
    assert problems_in(entries) == []
    provider.close()
