"""Waiting for a key: back-off, deadlines, and services that do not answer."""

from __future__ import annotations

import pytest

from lakelatch.errors import LakelatchError, LockTimeout, Unavailable
from lakelatch.locks.options import WAIT_TIME
from lakelatch.locks.session.backend import SessionGone, Wait
from lakelatch.testing.clock import ManualSystem


def test_a_wait_backs_off_until_its_deadline_however_often() -> None:
    system = ManualSystem()
    wait, tried = Wait(3600, system, lambda: False), 0
    while wait.back_off():
        tried += 1
    assert wait.left_s() == 0 and tried > 3600 / 0.5


def test_a_service_that_does_not_answer_is_asked_again_until_the_deadline() -> None:
    system, answers = ManualSystem(), [Unavailable("restarting"), Unavailable("restarting")]

    def ask() -> str:
        if answers:
            raise answers.pop()
        return "token"

    wait = Wait(5, system, lambda: False)
    assert wait.patiently(ask, LockTimeout) == "token" and wait.left_s() < 5
    answers += [Unavailable("down")] * 1000
    with pytest.raises(Unavailable, match="down"):
        wait.patiently(ask, LockTimeout)
    assert wait.left_s() == 0


def test_a_service_that_does_not_answer_is_told_once_after_the_first_failed_tries(
    caplog: pytest.LogCaptureFixture,
) -> None:
    system, tried = ManualSystem(), 0

    def ask() -> str:
        nonlocal tried
        tried += 1
        if tried == 2:
            assert caplog.messages == []  # one broken connection is no news
        if tried == 3:
            (told,) = caplog.messages
            assert all(text in told for text in ("2 tries", "up to 60 s", WAIT_TIME, "no route")), told
        if tried < 9:
            raise Unavailable("no route")
        return "token"

    wait = Wait(60, system, lambda: False)
    assert wait.patiently(ask, LockTimeout) == "token"
    assert len(caplog.messages) == 2 and "answers again, after 8 tries" in caplog.messages[1]


def test_a_session_that_is_gone_is_no_service_that_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[LakelatchError] = [SessionGone("expired"), SessionGone("expired"), Unavailable("no route")]

    def ask() -> str:
        if answers:
            raise answers.pop()
        return "token"

    assert Wait(60, ManualSystem(), lambda: False).patiently(ask, LockTimeout) == "token"
    assert caplog.messages == []


def test_a_final_answer_is_not_asked_for_again() -> None:
    def ask() -> None:
        raise LockTimeout("held by another")

    wait = Wait(5, ManualSystem(), lambda: False)
    with pytest.raises(LockTimeout):
        wait.patiently(ask, LockTimeout)
    assert wait.left_s() == 5


def test_a_wait_ends_when_the_provider_is_closed() -> None:
    with pytest.raises(Unavailable, match="closed"):
        Wait(5, ManualSystem(), lambda: True).back_off()
