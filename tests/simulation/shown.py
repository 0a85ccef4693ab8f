"""Which seed has shown each planted mistake: it is tried first, and the whole range only where it shows it no more.

What a simulation draws changes with the product, so a seed that has shown a mistake may do so no more: then the tests
look for it in all seeds of its range, which takes minutes for the rare ones. `find_planted.py` notes the seeds down.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from planted import PLANTED

TIMES_SEEDS = 4  # so many times the seeds of a mistake, or other draws would lose it
RECORD = Path(__file__).parents[2] / "docs" / "evidence" / "planted.json"
SHOWN: dict[str, int | None] = {name: found["seed"] for name, found in json.loads(RECORD.read_text()).items()}


def seeds_to_try(name: str) -> Iterator[int]:
    """The seed that has shown it, and then all from the one where it was first found."""
    known, seeds = SHOWN.get(name), range(PLANTED[name].first, PLANTED[name].first + TIMES_SEEDS * PLANTED[name].seeds)
    if known is not None and known in seeds:
        yield known
    yield from seeds
