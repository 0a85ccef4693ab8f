from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from claims_cases import CLAIMS_LONG
from commit_log_model import LogModel, Rules, State, without_lock
from group_cases import GROUP_LONG
from model_cases import PLANTED, SMALL
from search import Case, Planted, explore, reachable
from tables_cases import ALONE, TABLES_LONG
from tables_model import TableModel
from tables_rules import TableRules

# Minutes together, so they wait for the long stage.
LARGEST = ("combined", "log: a zombie beside who is paused", *CLAIMS_LONG, *GROUP_LONG, *TABLES_LONG)
CASES = [pytest.param(case, id=case.name, marks=pytest.mark.long if case.name in LARGEST else ()) for case in SMALL]


@pytest.mark.parametrize("case", CASES)
def test_the_protocol_keeps_every_promise(case: Case) -> None:
    result = explore(case.model)
    assert result.problem is None, f"{result.problem}: {' | '.join(result.trace)}"
    assert result.complete and result.states > 100


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_each_planted_mistake_breaks_a_promise(planted: Planted) -> None:
    result = explore(planted.model)
    assert result.problem is not None and planted.promise in result.problem
    assert planted.step in result.trace


def _under(leases_end: int | None, granted_twice: int = 0) -> set[State]:
    rules = Rules(("a", "a"), slots_kept=0, races_most=1, leases_end=leases_end, granted_twice=granted_twice)
    return {without_lock(state) for state in reachable(LogModel(rules))}


def test_a_lock_only_restricts_what_happens_without_one() -> None:
    nobody_asks = _under(None)
    perfect, lapsing, lying = _under(0), _under(2), _under(0, granted_twice=4)
    assert perfect < lapsing <= nobody_asks
    assert perfect < lying == nobody_asks


@pytest.mark.parametrize("rules", ALONE.values(), ids=ALONE)
def test_who_is_left_alone_gets_to_its_end_if_it_may_take_others_for_dead(rules: TableRules) -> None:
    assert not _left_waiting(TableModel(rules))
    assert _left_waiting(TableModel(replace(rules, patient=True)))


def _left_waiting(model: TableModel) -> set[str]:
    states = reachable(model)
    return {
        model.label(who)
        for state in states
        for who, part in enumerate(state.parts)
        if part.step != "begin" and not model.ends_alone(state, who)
    }


def test_what_was_explored_is_noted_down(tmp_path: Path) -> None:
    script = Path(__file__).with_name("explore.py")
    command = [sys.executable, str(script), "--only", "clean", "--record", str(tmp_path / "models.json")]
    assert subprocess.run(command, capture_output=True, timeout=240).returncode == 0
    found = json.loads((tmp_path / "models.json").read_text())
    (result,) = found["models"].values()
    assert result["complete"] and result["states"] > 1000 and "problem" not in result
    assert len(found["planted"]) == 5 and all(found["planted"].values())
