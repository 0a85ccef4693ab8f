from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable

import pytest

from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.storage import MemoryStorage, PutUnknown
from lakelatch.testing.faults.plan import (
    DONE,
    LATE,
    LOST_AFTER,
    LOST_BEFORE,
    REPEATED,
    UNAVAILABLE,
    Fault,
    FaultPlan,
    FaultRates,
)
from lakelatch.testing.faults.storage import FaultyStorage


def test_each_kind_of_fault_does_what_it_says() -> None:
    behind = MemoryStorage("each-kind")
    storage = FaultyStorage(
        behind,
        [
            Fault(LOST_AFTER, "put_if_absent", "after/", times=1),
            Fault(LOST_BEFORE, "put", "before/"),
            Fault(UNAVAILABLE, "delete", "clean/"),
        ],
    )
    with pytest.raises(PutUnknown):
        storage.put_if_absent("after/a", b"1")
    assert behind.read("after/a") == b"1" and not storage.put_if_absent("after/a", b"2")
    with pytest.raises(PutUnknown):
        storage.put("before/b", b"1")
    assert not behind.exists("before/b")
    storage.put("clean/c", b"1")
    with pytest.raises(Unavailable) as caught:
        storage.delete("clean/c")
    assert not isinstance(caught.value, PutUnknown) and behind.exists("clean/c")
    assert storage.failed == 3 and list(storage.walk("")) == ["after/a", "clean/c"]


def test_a_seed_repeats_its_failures_also_in_a_copy() -> None:
    def run(storage: FaultyStorage) -> list[bool]:
        failed = []
        for _ in range(50):
            before = storage.failed
            with contextlib.suppress(Unavailable):
                storage.exists("x")
            failed.append(storage.failed > before)
        return failed

    one = FaultyStorage(MemoryStorage("seeds"), [Fault(UNAVAILABLE, "stat", probability=0.5)], seed=4)
    other = FaultyStorage(MemoryStorage("seeds"), [Fault(UNAVAILABLE, "stat", probability=0.5)], seed=5)
    copy = pickle.loads(pickle.dumps(one))
    found = run(one)
    assert found == run(copy) != run(other) and any(found) and not all(found)


def test_what_happens_before_a_call_happens_there() -> None:
    behind = MemoryStorage("before-a-call")
    storage = FaultyStorage(behind, before=lambda operation, path: behind.put(path, operation.encode()))
    assert storage.read("x") == b"read"
    assert not storage.put_if_absent("y", b"mine") and behind.read("y") == b"put_if_absent"


class LatePuts(FaultPlan):
    """Every put is late, and arrives when the test says so."""

    def __init__(self) -> None:
        self.arriving: list[Callable[[], None]] = []
        self.noted: list[tuple[str, str]] = []

    def decide(self, operation: str, path: str, changes: bool) -> str:
        return LATE if changes else DONE

    def act_late(self, act: Callable[[], None]) -> None:
        self.arriving.append(act)

    def note(self, operation: str, path: str, kind: str, result: object = None) -> None:
        self.noted.append((operation, kind))


def test_a_late_put_arrives_after_its_caller_has_given_it_up() -> None:
    plan = LatePuts()
    storage = FaultyStorage(MemoryStorage("late"), plan)
    with pytest.raises(PutUnknown):
        storage.put_if_absent("a", b"1")
    with pytest.raises(Unavailable) as caught:
        storage.delete("a")
    assert not isinstance(caught.value, PutUnknown) and storage.list("").files == ()
    plan.arriving[0]()
    assert storage.read("a") == b"1"
    plan.arriving[1]()
    assert storage.list("").files == ()
    assert plan.noted[:3] == [("put_if_absent", LATE), ("delete", LATE), ("list", DONE)]


def test_rates_divide_the_numbers_between_0_and_1() -> None:
    rates = FaultRates(unavailable=0.1, late=0.2, lost_before=0.3, lost_after=0.2, repeated=0.1)
    drawn = [rates.draw(number, changes=True) for number in (0.05, 0.2, 0.5, 0.7, 0.85, 0.95)]
    assert drawn == [UNAVAILABLE, LATE, LOST_BEFORE, LOST_AFTER, REPEATED, DONE]
    assert [rates.draw(number, changes=False) for number in (0.05, 0.2, 0.99)] == [UNAVAILABLE, DONE, DONE]
    rates.change(late=0.0)
    assert rates.draw(0.2, changes=True) == LOST_BEFORE
    rates.clear()
    assert rates.draw(0.0, changes=True) == DONE
    with pytest.raises(InvalidRequest, match="fog"):
        rates.change(fog=1.0)


@pytest.mark.parametrize(
    "values",
    [{"kind": "lost"}, {"kind": LOST_AFTER, "operation": "read"}, {"kind": UNAVAILABLE, "probability": 1.5}],
)
def test_impossible_faults_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        Fault(**values)  # type: ignore[arg-type]
