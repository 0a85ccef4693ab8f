"""Explores the models from the command line: the bounds of every test run, or (`--large`) those of a night.

    nice python tests/model/explore.py [--large] [--minutes 480] [--states 4000000] [--only combined] [--record FILE]

One core. What does not fit into the time or the memory is looked at as far as it goes, nearest states
first, and says so. The exit code is 1 if a promise is broken.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from model_cases import LARGE, PLANTED, SMALL
from search import Case, Result, explore

from lakelatch.system import REAL_SYSTEM
from lakelatch.torture.report.ledger import day, source


def main() -> int:
    parser = argparse.ArgumentParser(description="Looks at every state of the models of the protocol.")
    parser.add_argument("--large", action="store_true", help="large bounds, without the planted mistakes")
    parser.add_argument("--minutes", type=float, default=480.0, help="for all models together")
    parser.add_argument("--states", type=int, default=4_000_000, help="of one model at most; a million take about 1 GB")
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument("--record", type=Path, help="write what was explored, and found, to this file")
    options = parser.parse_args()
    chosen = [case for case in (LARGE if options.large else SMALL) if options.only in case.name]
    ends_ns = REAL_SYSTEM.monotonic_ns() + int(options.minutes * 60e9)
    broken, total = False, 0
    models: dict[str, Any] = {}
    record = {"source": source(), "day": day(), "large": options.large, "models": models}
    for place, case in enumerate(chosen):
        now_ns = REAL_SYSTEM.monotonic_ns()
        result = _explore(case, now_ns + (ends_ns - now_ns) // (len(chosen) - place), options.states)
        broken |= result.problem is not None
        total += result.states
        models[case.name] = {"states": result.states, "depth": result.depth, "complete": result.complete}
        models[case.name] |= {"problem": result.problem} if result.problem else {}
    print(f"{total:,} states in {len(chosen)} models")
    if not options.large:
        record["planted"] = _show_planted(options.only)
    if options.record:
        options.record.parent.mkdir(parents=True, exist_ok=True)
        options.record.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    return int(broken)


def _explore(case: Case, ends_ns: int, states_most: int) -> Result[Any]:
    began_ns = REAL_SYSTEM.monotonic_ns()

    def go_on(states: int, depth: int) -> bool:
        now_ns = REAL_SYSTEM.monotonic_ns()
        line = f"{case.name}: {states:,} states, depth {depth}, {states * 1e9 / max(1, now_ns - began_ns):,.0f}/s"
        print(f"\r{line:<100}", end="", file=sys.stderr, flush=True)
        return now_ns < ends_ns and states < states_most

    result = explore(case.model, go_on)
    print("\r" + " " * 100 + "\r", end="", file=sys.stderr, flush=True)
    took_s = (REAL_SYSTEM.monotonic_ns() - began_ns) / 1e9
    verdict = "holds" if result.complete else "holds as far as it was looked at"
    print(f"{case.name}: {result.problem or verdict}; {result.states:,} states, depth {result.depth}, {took_s:.1f} s")
    for number, step in enumerate(result.trace, 1):
        print(f"  {number}. {step}")
    sys.stdout.flush()
    return result


def _show_planted(only: str) -> dict[str, int]:
    """The steps of the shortest trace to each mistake; 0 if it was not found."""
    steps = {}
    for planted in PLANTED:
        if only in planted.name:
            result = explore(planted.model)
            print(f"\n{planted.name}: {result.problem or 'NOT FOUND'} ({len(result.trace)} steps)")
            steps[planted.name] = len(result.trace)
            for number, step in enumerate(result.trace, 1):
                print(f"  {number}. {step}")
    return steps


if __name__ == "__main__":
    sys.exit(main())
