"""Looks for every mistake that can be planted, and notes down the seed that shows each.

`python tests/simulation/find_planted.py [--record FILE] [--seeds-most 400]`: a mistake whose note is of the same source
is not looked for again, so a search that is cut off goes on.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path
from typing import Any

from planted import PLANTED
from record import stamp
from shown import RECORD, TIMES_SEEDS
from simulate import simulate


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path, default=RECORD, help="where to note down what was found")
    parser.add_argument("--seeds-most", type=int, default=100_000, help="leave out what may need more seeds than this")
    parser.add_argument("--only", default="", choices=["", *PLANTED], help="look for this one alone")
    options = parser.parse_args()
    logging.disable()
    found: dict[str, Any] = json.loads(options.record.read_text()) if options.record.exists() else {}
    now, missed = stamp(), []
    for name, mistake in PLANTED.items():
        if mistake.seeds > options.seeds_most or options.only not in ("", name):
            continue
        if found.get(name, {}).get("source") == now["source"]:
            continue
        seeds = range(mistake.first, mistake.first + TIMES_SEEDS * mistake.seeds)
        seed = next((seed for seed in seeds if simulate(seed, name).problems), None)
        tried = len(seeds) if seed is None else seed - mistake.first + 1
        print(f"{name}: {'NOT FOUND' if seed is None else f'seed {seed}'}, {tried} tried", flush=True)
        missed += [name] if seed is None else []
        found[name] = {**now, "seed": seed, "tried": tried}
        options.record.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
