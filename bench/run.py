"""Runs the benchmarks, or those that are named: `python bench/run.py [NAME ...]`. Writes bench/results.json."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

BENCHMARKS = (
    "commit_overhead",
    "commit_cpu",
    "metrics",
    "spark.small_write",
    "locks.uncontended",
    "locks.handoff",
    "locks.takeover",
    "locks.leases",
    "time_generator",
    "nbcc_writers",
    "success_rates",
    "stores.one",
    "stores.many",
    "several",
    "wasted_work",
    "markers",
    "steady_stream",
    "timeline",
    "ui",
    "spark.loading",
    "spark.reading",
    "spark.untouched",
    "spark.partitions",
    "spark.changing",
    "spark.all_day",
    "spark.delta",
    "planning",
    "services.rewriting",
    "services.ingestion",
    "services.cleaning",
    "services.memory",
)


def main() -> int:
    from bench.harness import RESULTS, save

    names = sys.argv[1:] or list(BENCHMARKS)
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"no benchmark named {', '.join(unknown)}: there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    for name in names:
        print(f"{name} ...", flush=True)
        results = import_module(f"bench.{name}").run()
        save(results)
        for result in results:
            verdict = "met" if result.met else "MISSED"
            ratio = "" if result.ratio is None else f", ratio {result.ratio:g}"
            print(
                f"  {result.name}: {result.value} {result.unit}{ratio} (goal: {result.goal}: {verdict}; {result.note})"
            )
    print(f"written to {RESULTS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
