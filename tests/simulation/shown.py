"""Which seed has shown each planted mistake: it is tried first, and the whole range only where it shows it no more.

What a simulation draws changes with the product, so a seed that has shown a mistake may do so no more: then the tests
look for it in all seeds of its range, which takes minutes for the rare ones.
`python tests/simulation/shown.py` looks for those that have moved, and writes the file anew.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from planted import PLANTED
from simulate import open_pool, simulate

TIMES_SEEDS = 4  # so many times the seeds of a mistake, or other draws would lose it
_FILE = Path(__file__).with_name("shown.json")
SHOWN: dict[str, int] = json.loads(_FILE.read_text())


def seeds_to_try(name: str) -> Iterator[int]:
    """The seed that has shown it, and then all from the one where it was first found."""
    first, last = PLANTED[name].first, PLANTED[name].first + TIMES_SEEDS * PLANTED[name].seeds
    if first <= SHOWN.get(name, -1) < last:
        yield SHOWN[name]
    yield from range(first, last)


def _look_for(name: str) -> tuple[str, int | None]:
    return name, next((seed for seed in seeds_to_try(name) if simulate(seed, name).problems), None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=0, help="0 for one on each core")
    missing = []
    with open_pool(parser.parse_args().processes) as pool:
        for name, seed in pool.imap_unordered(_look_for, PLANTED):
            print(f"{name}: {seed}", flush=True)
            if seed is None:
                missing.append(name)
                continue
            SHOWN[name] = seed
            known = {each: SHOWN[each] for each in PLANTED if each in SHOWN}
            _FILE.write_text(json.dumps(known, indent=1) + "\n")  # at once: whoever ends this keeps what it has found
    if missing:
        print(f"No seed of its range shows: {', '.join(missing)}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
