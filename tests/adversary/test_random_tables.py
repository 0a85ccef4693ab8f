"""Tables of all options are changed in random ways, beside an oracle that shares no code with the product.

`LAKELATCH_ADVERSARY=2000:2100` attacks tables of other seeds, and `LAKELATCH_ADVERSARY_STEPS` says how long each.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from attack import KINDS
from hunt import attacks
from looks import Looks
from option_space import SPACE

SEEDS, STEPS = range(116, 130), 8
LONG_SEEDS, LONG_STEPS = range(300, 330), 25
CHOICES = {f"{name}={value}" for name, values in SPACE.items() for value in values}
READS = {"now", "as of", "between", "images", "columns", "key", "part of key", "read optimized"}
BY_HUDI_RS = {"now, hudi-rs", "as of, hudi-rs", "between, hudi-rs"}


def done(reached: Counter[str]) -> set[str]:
    """The kinds of steps that were carried out at least once."""
    return {kind for kind in KINDS for name in reached if name.startswith(f"{kind}: ") and "left out" not in name}


def test_whatever_is_done_to_a_table_of_any_options_it_has_the_oracles_rows(tmp_path: Path) -> None:
    looks = Looks()
    reached = attacks(tmp_path, SEEDS, STEPS, looks)
    assert CHOICES - set(reached) == set()
    assert set(looks.compared) >= READS | BY_HUDI_RS
    assert looks.compared.total() > 800


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_all_steps_of_an_attack_are_met_and_all_reads_compared(tmp_path: Path) -> None:
    looks = Looks()
    given = os.environ.get("LAKELATCH_ADVERSARY", "")
    begin, _, end = given.partition(":")
    seeds = range(int(begin), int(end)) if given else LONG_SEEDS
    reached = attacks(tmp_path, seeds, int(os.environ.get("LAKELATCH_ADVERSARY_STEPS", LONG_STEPS)), looks)
    if not given:
        assert set(KINDS) - done(reached) == set()
        assert set(looks.compared) >= READS | BY_HUDI_RS
        assert reached["restore: done"] and reached["roll_back: done"] and reached["compact_and_forget: done"]
        assert sum(count for name, count in reached.items() if name.startswith("beside: ")) > 30
        assert looks.compared.total() > 6_000
