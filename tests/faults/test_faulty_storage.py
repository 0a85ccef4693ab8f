from __future__ import annotations

import contextlib
import pickle

import pytest

from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.storage import MemoryStorage, PutUnknown
from lakelatch.testing.faulty_storage import LOST_AFTER, LOST_BEFORE, UNAVAILABLE, Fault, FaultyStorage


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


@pytest.mark.parametrize(
    "values",
    [{"kind": "lost"}, {"kind": LOST_AFTER, "operation": "read"}, {"kind": UNAVAILABLE, "probability": 1.5}],
)
def test_impossible_faults_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        Fault(**values)  # type: ignore[arg-type]
