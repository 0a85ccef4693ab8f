from __future__ import annotations

import pytest
from commit_log_model import PLAN, Rules, explore

SOUND = [
    Rules(("a", "a"), slots_kept=0),
    Rules(("a", PLAN), slots_kept=0),
    Rules(("a", "a", "b"), races_most=1),
    Rules(("a", "a", "b"), slots_kept=0, races_most=0),
    Rules(("a", "b", PLAN), races_most=1),
    Rules(("a", "b", "c"), slots_kept=0, races_most=0),
]

# the mistake, the promise that it breaks, and the step of the trace in which it shows
PLANTED = [
    (Rules(("a", "b", "c"), 0, looks_at_watermark=False), "log knows nothing of it", "w1 creates slot 1"),
    (Rules(("a", "b", "c"), 0, own_file_decides=False), "told 'not committed'", "w0 finds slot 1 below the watermark"),
    (Rules(rolls_forward=False), "out of the order", "w0 shows its file"),
    (Rules(fresh_time=False), "times do not increase", "w0 keeps time 1"),
    (Rules(knows_own_slot=False), "told 'not committed'", "w0 takes it for a loss"),
    (Rules(("a", PLAN), plan_in_log=False), "a plan misses a commit", "w1 writes its plan beside the log"),
    (Rules(("a", "a"), numbered=False), "an update was lost", "w1 creates its file of time 2"),
]


@pytest.mark.parametrize("rules", SOUND, ids=lambda rules: f"{','.join(rules.groups)}-keep{rules.slots_kept}")
def test_the_protocol_keeps_every_promise(rules: Rules) -> None:
    result = explore(rules)
    assert result.problem is None, f"{result.problem}: {' | '.join(result.trace)}"
    assert result.states > 400


@pytest.mark.parametrize(("rules", "promise", "step"), PLANTED, ids=[case[2] for case in PLANTED])
def test_each_planted_mistake_breaks_a_promise(rules: Rules, promise: str, step: str) -> None:
    result = explore(rules)
    assert result.problem is not None and promise in result.problem
    assert step in result.trace
