"""A run as one HTML page that needs nothing else: the verdict, what was done, and pictures of the rounds.

The page is `report.html.j2`, the picture of a round `round.svg.j2`; this module has their contents.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lakelatch.errors import CorruptTable, InvalidRequest
from lakelatch.torture.history.reading import read_history
from lakelatch.torture.report.drawing import Picture, draw_round, family_of

_DRAWN_MAX = 20
_PROBLEMS_SHOWN_MAX = 100
_ACTIONS = ("stop", "kill", "raise")


@dataclass(frozen=True)
class Round:
    """A round that was checked."""

    folder: Path
    facts: dict[str, Any]
    verdict: dict[str, Any]

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def provider(self) -> str:
        return str(self.facts.get("provider") or self.name.partition("-")[2])

    @property
    def minutes(self) -> float:
        """How long faults were injected."""
        return max(int(self.facts.get("faults_ended_ns") or 0) - int(self.facts.get("began_ns") or 0), 0) / 60e9

    @property
    def problems(self) -> list[str]:
        return list(self.verdict.get("problems") or [])

    @property
    def leases_to_recover(self) -> float:
        return float(self.verdict.get("recovery_s", 0.0)) / float(self.verdict.get("lease_s") or 1.0)

    def count(self, name: str) -> int:
        return int((self.verdict.get("counts") or {}).get(name, 0))

    def total(self, name: str) -> int:
        """How many faults, or failpoints."""
        return sum((self.verdict.get(name) or {}).values())

    @property
    def interest(self) -> tuple[int, float]:
        """The order of pictures: problems first, then rounds with rare and hard events."""
        rare = self.count("unknown") + self.count("rollbacks") + 5 * self.count("overlaps")
        return len(self.problems), rare + self.count("conflicts") / 10 + 10 * self.leases_to_recover

    @property
    def summary(self) -> str:
        """The outcome in a line."""
        return (
            f"{self.minutes * 60:.0f} s of faults, {counted(self.count('committed'), 'commit')}, "
            f"{counted(self.count('conflicts'), 'conflict')}, {self.count('unknown'):,} unknown, "
            f"{counted(self.total('faults'), 'fault')}, recovered in {self.verdict.get('recovery_s', 0.0):.1f} s"
        )

    @property
    def notes(self) -> list[str]:
        """Remarks that are worth knowing, and allowed."""
        notes = list(self.verdict.get("notes") or [])
        hudi_rs = self.verdict.get("hudi_rs", "agreed")
        return notes if hudi_rs == "agreed" else [*notes, f"hudi-rs: {hudi_rs}"]

    @cached_property
    def _drawn(self) -> tuple[Picture | None, str]:
        try:
            return draw_round(self.facts, read_history(self.folder / "history")), ""
        except CorruptTable as error:
            return None, str(error)

    @property
    def picture(self) -> Picture | None:
        """The round over time; None if nothing happened, or if its history cannot be read."""
        return self._drawn[0]

    @property
    def unreadable(self) -> str:
        """Why its history cannot be read."""
        return self._drawn[1]


def ensure_can_report() -> None:
    """Errors: `InvalidRequest` where Jinja2 is not installed."""
    try:
        import jinja2  # noqa: F401  (an extra: only a report needs it)
    except ImportError as error:
        raise InvalidRequest("--report needs Jinja2: pip install 'lakelatch[torture]'") from error


def write_report(run_folder: Path, out: Path, ledger: Path | None = None) -> None:
    """Writes the page on a run, as far as it has come, to `out`; with a ledger, also what is owed after all runs.

    Errors: `InvalidRequest` where there is no run, or no Jinja2.
    """
    ensure_can_report()
    from jinja2 import Environment, PackageLoader, StrictUndefined

    try:
        settings = json.loads((run_folder / "run.json").read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"{run_folder} holds no run to report on ({error}): name the folder of a run") from error
    rounds = [_read(path.parent) for path in sorted((run_folder / "rounds").glob("*/verdict.json"))]
    templates = Environment(
        loader=PackageLoader("lakelatch.torture", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters["counted"] = counted
    page = templates.get_template("report.html.j2").render(
        _contents(settings, rounds), owed=_owed(ledger) if ledger else []
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page, encoding="utf-8")


def _read(folder: Path) -> Round:
    facts = folder / "round.json"
    known = json.loads(facts.read_bytes()) if facts.is_file() else {}
    return Round(folder, known, json.loads((folder / "verdict.json").read_bytes()))


def _contents(settings: Mapping[str, Any], rounds: list[Round]) -> dict[str, Any]:
    """The contents of the page."""
    problems = [(one.name, problem) for one in rounds for problem in one.problems]
    faults: Counter[str] = Counter()
    hits: Counter[str] = Counter()
    for one in rounds:
        faults.update(one.verdict.get("faults") or {})
        hits.update(one.verdict.get("failpoints") or {})
    actions = _actions(hits)
    drawn = sorted(rounds, key=lambda one: one.interest, reverse=True)[:_DRAWN_MAX]
    well = "nothing lost, nothing doubled" if rounds else "no round has ended yet"
    return {
        "settings": {"seed": "?", "lease_s": "?", **settings},
        "outcome": counted(len(problems), "problem") if problems else well,
        "providers": list(dict.fromkeys(one.provider for one in rounds)) or list(settings.get("providers") or ()),
        "rounds": rounds,
        "wrong": [one for one in rounds if one.problems],
        "problems": problems,
        "problems_max": _PROBLEMS_SHOWN_MAX,
        "agreed": sum(one.verdict.get("hudi_rs") == "agreed" for one in rounds),
        "totals": list(_totals(rounds)) if rounds else [],
        "of_providers": [_of_provider(name, rounds) for name in dict.fromkeys(one.provider for one in rounds)],
        "faults": list(_bars(faults)),
        "actions": actions,
        "failpoints": list(_heat(hits, actions)),
        "drawn": sorted(drawn, key=lambda one: (not one.problems, one.name)),
        "of_rounds": [_of_round(one) for one in rounds],
    }


def _totals(rounds: list[Round]) -> Iterator[tuple[str, str]]:
    def total(name: str) -> int:
        return sum(one.count(name) for one in rounds)

    resolved = total("unknown_committed") + total("unknown_not_committed")
    yield f"{sum(one.minutes for one in rounds):,.1f}", "minutes of faults"
    yield f"{sum(int(one.verdict.get('operations') or 0) for one in rounds):,}", "operations"
    yield f"{total('committed'):,}", "acknowledged commits"
    yield f"{total('conflicts'):,}", "conflicts"
    yield f"{total('retries'):,}", "retries"
    yield f"{resolved:,}", f"unknown, {total('unknown_committed'):,} of them committed"
    yield f"{total('rollbacks'):,}", "rollbacks"
    for name in ("compactions", "clusterings", "cancellations", "cleans"):
        yield f"{total(name):,}", name
    yield f"{total('cleaned_files'):,}", "files cleaned"
    yield f"{total('archived'):,}", "instants archived"
    yield f"{total('snapshots'):,}", "snapshots checked"
    yield f"{sum(one.total('faults') for one in rounds):,}", "faults"
    yield f"{sum(one.total('failpoints') for one in rounds):,}", "failpoints hit"
    yield f"{max(one.leases_to_recover for one in rounds):.1f}", "lease times: worst recovery"


def _of_provider(provider: str, rounds: list[Round]) -> tuple[str, ...]:
    own = [one for one in rounds if one.provider == provider]
    return (
        provider,
        f"{len(own):,}",
        f"{sum(one.minutes for one in own):,.1f}",
        *(f"{sum(one.count(name) for one in own):,}" for name in ("committed", "conflicts")),
        f"{sum(one.total('faults') for one in own):,}",
        f"{max(one.leases_to_recover for one in own):.1f} leases",
        f"{sum(one.count('overlaps') for one in own):,}",
        f"{sum(len(one.problems) for one in own):,}",
    )


def _of_round(one: Round) -> tuple[str, ...]:
    counts = (f"{one.count(name):,}" for name in ("committed", "conflicts", "unknown", "rollbacks"))
    return one.name, *counts, f"{one.total('faults'):,}", f"{one.leases_to_recover:.1f} leases"


def _owed(ledger: Path) -> list[tuple[str, ...]]:
    """Of everything that is owed: what, how much was done, how much it has to be, and what is short of it."""
    from lakelatch.torture.report.ledger import COMMITS_OWED, MINUTES_OWED, TIMES_OWED, Owed, read_ledger

    owed = Owed.after(read_ledger(ledger))
    minutes = [
        (f"minutes of faults on {name}", f"{done:,.1f}", f"{MINUTES_OWED:g}") for name, done in owed.minutes.items()
    ]
    rare = ", ".join(f"{kind.replace('_', ' ')} {count}" for kind, count in owed.rare.items())
    return [
        *((*row, "") for row in minutes),
        ("acknowledged commits", f"{owed.commits:,}", f"{COMMITS_OWED:,}", ""),
        (
            f"kinds of faults that came {TIMES_OWED} times",
            f"{len(owed.faults) - len(owed.rare)}",
            f"{len(owed.faults)}",
            rare,
        ),
    ]


def _bars(faults: Mapping[str, int]) -> Iterator[dict[str, str]]:
    """The kinds of faults, most frequent first."""
    most = max(faults.values(), default=1)
    for kind, count in sorted(faults.items(), key=lambda item: (-item[1], item[0])):
        percent = f"{100 * count / most:.1f}"
        yield {
            "name": kind.replace("_", " "),
            "count": f"{count:,}",
            "percent": percent,
            "family": family_of(kind),
        }


def _actions(hits: Mapping[str, int]) -> list[str]:
    found = {key.rpartition("=")[2] for key in hits}
    return [*(action for action in _ACTIONS if action in found), *sorted(found - set(_ACTIONS))]


def _heat(hits: Mapping[str, int], actions: list[str]) -> Iterator[tuple[str, list[tuple[int, str]]]]:
    """Each failpoint, with how often each action happened there, and how strong its colour is."""
    most = max(hits.values(), default=1)
    for name in sorted({key.rpartition("=")[0] for key in hits}):
        counts = [hits.get(f"{name}={action}", 0) for action in actions]
        yield name, [(count, f"{0.12 + 0.5 * count / most if count else 0.0:.2f}") for count in counts]


def counted(count: int, what: str) -> str:
    """A number and its noun."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
