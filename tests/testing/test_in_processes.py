"""Processes that the conformance suites start: each has the environment of now, whichever it is forked from."""

from __future__ import annotations

import pytest
from child_environment import tell_variable

from lakelatch.testing.conformance.in_processes import Child


@pytest.mark.parametrize("started_anew", [False, True])
def test_a_child_has_the_environment_of_its_parent(monkeypatch: pytest.MonkeyPatch, started_anew: bool) -> None:
    for value in ("one", "other"):
        monkeypatch.setenv("LAKELATCH_TEST_VARIABLE", value)
        child = Child(tell_variable, "LAKELATCH_TEST_VARIABLE", started_anew=started_anew)
        assert child.receive() == value
        assert child.join() == 0
