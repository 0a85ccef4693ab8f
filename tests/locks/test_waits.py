"""Waiting for a key: back-off, deadlines, and services that do not answer."""

from __future__ import annotations

import pytest

from lakelatch.errors import LockTimeout, Unavailable
from lakelatch.locks.session.backend import Wait
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
