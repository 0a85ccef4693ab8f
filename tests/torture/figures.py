"""Prints the tables of `tests/README.md` from the folders of one or more runs of `lakelatch torture`.

python tests/torture/figures.py FOLDER ...
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from lakelatch.torture.runs.run import faults_s_of, verdicts_of

Rounds = list[tuple[Path, dict[str, Any]]]

HEAD = (
    "| locks | minutes of faults | rounds | acknowledged commits | faults | conflicts | unknown (of them committed) "
    "| rollbacks | compactions | clusterings | cancelled | cleans (files) | archived "
    "| overlaps | recovery in lease times, median / worst |"
)


def main(folders: Iterable[str]) -> None:
    by_provider: dict[str, Rounds] = {}
    for folder in folders:
        for place, verdict in verdicts_of(Path(folder)).items():
            by_provider.setdefault(place.name.partition("-")[2], []).append((place, verdict))
    print(HEAD)
    print("| " + " | ".join(["---"] * HEAD.count("| ")) + " |")
    for provider in sorted(by_provider):
        print(_line(f"`{provider}`", by_provider[provider]))
    everything = [one for rounds in by_provider.values() for one in rounds]
    print(_line("together", everything))
    faults: Counter[str] = Counter()
    for _, verdict in everything:
        faults.update(verdict["faults"])
    print("\nFaults: " + ", ".join(f"`{kind}` {count}" for kind, count in sorted(faults.items())))
    steps: Counter[str] = Counter()
    for _, verdict in everything:
        steps.update(verdict["failpoints"])
    print(f"\n{len(steps)} pairs of a step and a harm, each at least {min(steps.values(), default=0)} times")
    for place, verdict in everything:
        for text in verdict["problems"]:
            print(f"{place.name}: {text}")


def _line(name: str, rounds: Rounds) -> str:
    counts: Counter[str] = Counter()
    for _, verdict in rounds:
        counts.update(verdict["counts"])
    minutes = sum(faults_s_of(place) for place, _ in rounds) / 60
    recovered = [verdict["recovery_s"] / verdict["lease_s"] for _, verdict in rounds if verdict["recovery_s"]]
    cells = [
        name,
        f"{minutes:.1f}",
        f"{len(rounds)}",
        f"{counts['committed']:,}",
        f"{sum(sum(verdict['faults'].values()) for _, verdict in rounds):,}",
        f"{counts['conflicts']:,}",
        f"{counts['unknown']:,} ({counts['unknown_committed']})",
        f"{counts['rollbacks']:,}",
        f"{counts['compactions']:,}",
        f"{counts['clusterings']:,}",
        f"{counts['cancellations']:,}",
        f"{counts['cleans']:,} ({counts['cleaned_files']:,})",
        f"{counts['archived']:,}",
        f"{counts['overlaps']:,}",
        f"{median(recovered):.1f} / {max(recovered):.1f}" if recovered else "",
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main(sys.argv[1:])
