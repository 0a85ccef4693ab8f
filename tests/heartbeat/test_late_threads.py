"""Threads that begin later: those that are joined before their time never run, the others do, each by itself."""

from __future__ import annotations

import os
import queue
import threading
from functools import partial

import pytest

from lakelatch import system
from lakelatch.system import REAL_SYSTEM


def test_they_begin_in_the_order_of_their_times_and_not_if_they_are_joined_before() -> None:
    begun: queue.SimpleQueue[str] = queue.SimpleQueue()
    threads = [
        REAL_SYSTEM.start_thread(partial(begun.put, name), name, after_s)
        for name, after_s in (("last", 0.4), ("joined", 0.2), ("first", 0.1))
    ]
    threads[1].join()
    assert [begun.get(timeout=30), begun.get(timeout=30)] == ["first", "last"]
    for thread in threads:
        thread.join(timeout=30)
    assert begun.empty()


def test_one_that_is_at_work_keeps_no_other_from_beginning_and_is_waited_for() -> None:
    go_on, began = threading.Event(), threading.Event()

    def work() -> None:
        go_on.wait(30)

    slow = REAL_SYSTEM.start_thread(work, "slow", 0.05)
    other = REAL_SYSTEM.start_thread(began.set, "other", 0.1)
    assert began.wait(30)
    slow.join(timeout=0.01)
    go_on.set()
    slow.join(timeout=30)
    other.join(timeout=30)
    assert not {"slow", "other"} & {thread.name for thread in threading.enumerate()}


def test_one_that_could_not_begin_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    began = threading.Event()
    refused: list[str] = []
    start = threading.Thread.start

    def once(thread: threading.Thread) -> None:
        if thread.name == "scarce" and not refused:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", once)
    REAL_SYSTEM.start_thread(began.set, "scarce", 0.01)
    assert began.wait(30) and refused == ["scarce"]


def test_a_forked_child_has_its_own_and_none_of_its_parents() -> None:
    parents = REAL_SYSTEM.start_thread(lambda: None, "parents", 600)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        parents.join()
        began = threading.Event()
        REAL_SYSTEM.start_thread(began.set, "childs", 0.01)
        os.write(writer, b"begun" if began.wait(30) else b"late")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 10) == b"begun"
    parents.join()


def test_one_that_was_refused_by_an_error_never_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of all needs the thread that has the others begin."""
    begun: queue.SimpleQueue[str] = queue.SimpleQueue()
    monkeypatch.setattr(system, "_late_threads", system._LateThreads())
    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(threading.Thread, "start", _refuse)
        REAL_SYSTEM.start_thread(lambda: begun.put("refused"), "refused", 0.01)
    REAL_SYSTEM.start_thread(lambda: begun.put("next"), "next", 0.05)
    assert begun.get(timeout=30) == "next" and begun.empty()


def _refuse(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
