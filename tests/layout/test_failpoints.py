"""That failpoints act when they are told to, and only then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from lakelatch import failpoints
from lakelatch.errors import InvariantBroken
from lakelatch.failpoints import ENVIRONMENT_VARIABLE, NAMES, FailpointHit, active, calling, failpoint

PASS_TWICE = """
from lakelatch.failpoints import failpoint
for _ in range(2):
    failpoint("commit.after_slot")
    print("passed", flush=True)
"""


def start(points: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PASS_TWICE],
        env={**os.environ, ENVIRONMENT_VARIABLE: points},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(child: subprocess.Popen[str]) -> tuple[int, int, str]:
    """Exit code, how often the child passed the point, and what it complained of."""
    out, complaint = child.communicate(timeout=600)
    return child.returncode, out.count("passed"), complaint


def test_nothing_happens_when_they_are_off() -> None:
    for name in NAMES:
        failpoint(name)
    assert len(set(NAMES)) == len(NAMES) and not failpoints._active


def test_a_point_raises_within_its_block_only() -> None:
    with active("mark.after=raise, close.after=raise"):
        for name in ("mark.after", "close.after"):
            with pytest.raises(FailpointHit, match=name):
                failpoint(name)
        failpoint("data.after")
    failpoint("mark.after")
    assert not failpoints._active


def test_a_visit_is_counted() -> None:
    with active("mark.after=raise@3"):
        failpoint("mark.after")
        failpoint("mark.after")
        with pytest.raises(FailpointHit):
            failpoint("mark.after")
        failpoint("mark.after")
    with active("mark.after=raise@1"), pytest.raises(FailpointHit):  # counted anew
        failpoint("mark.after")


def test_a_function_is_called_within_its_block_only() -> None:
    called: list[str] = []
    with calling(called.append, ["mark.after", "close.after"]), active("data.after=raise"):
        failpoint("mark.after")
        failpoint("close.after")
        with pytest.raises(FailpointHit):
            failpoint("data.after")
        with calling(lambda name: called.append("inner"), ["mark.after"]):
            failpoint("mark.after")
        failpoint("mark.after")
    failpoint("mark.after")
    assert called == ["mark.after", "close.after", "inner", "mark.after"] and not failpoints._active
    with pytest.raises(InvariantBroken, match="no failpoint"), calling(called.append, ["no.such"]):
        pass


@pytest.mark.parametrize(
    "text",
    [
        "no.such=raise",
        "mark.after=explode",
        "mark.after",
        "mark.after=",
        "=raise",
        "mark.after=raise@0",
        "mark.after=raise@x",
        "mark.after=raise@",
    ],
)
def test_a_slip_of_the_pen_is_refused(text: str) -> None:
    with pytest.raises(InvariantBroken, match="no failpoint"), active(text):
        pass


def test_kill_ends_a_child_process_at_the_point() -> None:
    assert finish(start("commit.after_slot=kill"))[:2] == (-signal.SIGKILL, 0)
    assert finish(start("commit.after_slot=kill@2"))[:2] == (-signal.SIGKILL, 1)


def test_raise_reaches_a_child_process_through_the_environment() -> None:
    code, passed, complaint = finish(start("commit.after_slot=raise@2"))
    assert (code, passed) == (1, 1) and "FailpointHit" in complaint


def test_stop_pauses_a_child_process_until_it_is_continued() -> None:
    child = start("commit.after_slot=stop@2")
    try:
        _, status = os.waitpid(child.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status) and os.WSTOPSIG(status) == signal.SIGSTOP
        child.send_signal(signal.SIGCONT)
        assert finish(child)[:2] == (0, 2)
    finally:
        child.kill()


def test_a_slip_of_the_pen_in_the_environment_stops_the_process() -> None:
    code, passed, complaint = finish(start("commit.after_slott=kill"))
    assert (code, passed) == (1, 0) and "commit.after_slott" in complaint
