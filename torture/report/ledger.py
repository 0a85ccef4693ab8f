"""What rounds of torture came to, a line of JSON for each, over all runs that name one file; and what is owed yet.

A round is known by a digest of what its folder says, so that adding it again changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import lakelatch
from lakelatch.errors import InvalidRequest
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.torture.nemesis.faults import FAULTS
from lakelatch.torture.nemesis.half_broken import HALF_BROKEN
from lakelatch.torture.nemesis.nemesis import SERVICE_ROLES
from lakelatch.torture.nemesis.store_faults import ON_STORE
from lakelatch.torture.settings import PROVIDERS

MINUTES_OWED, COMMITS_OWED, TIMES_OWED = 15.0, 50_000, 20
_AGAIN = ("zombie_again", *(f"{role}_zombie_again" for role in SERVICE_ROLES))  # which follow by chance on a stop
#: Every kind of fault, as verdicts count them.
KINDS: Sequence[str] = tuple(sorted({*FAULTS, *HALF_BROKEN, *ON_STORE, *_AGAIN}))
_NEEDED = frozenset({"id", "provider", "minutes", "counts", "faults", "problems"})
_CODE = (":(top)*.py", ":(top)*.lua", *(f":(top,exclude){folder}" for folder in ("docs", "bench")))
_DAY_MS = 86_400_000

Line = dict[str, Any]


@dataclass(frozen=True)
class Owed:
    """How far all rounds together are: minutes by provider, acknowledged commits, and how often each fault came."""

    rounds: int
    problems: int
    minutes: Mapping[str, float]
    commits: int
    faults: Mapping[str, int]

    @classmethod
    def after(cls, lines: Sequence[Line]) -> Owed:
        minutes: Counter[str] = Counter()
        faults: Counter[str] = Counter()
        for line in lines:
            minutes[line["provider"]] += line["minutes"]
            faults.update(line["faults"])
        return cls(
            rounds=len(lines),
            problems=sum(len(line["problems"]) for line in lines),
            minutes={name: round(minutes[name], 1) for name in PROVIDERS},
            commits=sum(line["counts"].get("committed", 0) for line in lines),
            faults={kind: faults[kind] for kind in KINDS},
        )

    @property
    def rare(self) -> dict[str, int]:
        """The kinds of faults that came less often than each has to."""
        return {kind: count for kind, count in self.faults.items() if count < TIMES_OWED}

    @property
    def missing(self) -> list[str]:
        """What is owed yet, as phrases; empty once all of it was done."""
        short = {name: done for name, done in self.minutes.items() if done < MINUTES_OWED}
        said = [f"{MINUTES_OWED - done:.1f} minutes of {name}" for name, done in short.items()]
        if self.commits < COMMITS_OWED:
            said.append(f"{COMMITS_OWED - self.commits:,} of {COMMITS_OWED:,} acknowledged commits")
        if self.rare:
            rare = ", ".join(f"{kind} {count}" for kind, count in self.rare.items())
            said.append(f"{len(self.rare)} of {len(self.faults)} kinds of faults {TIMES_OWED} times ({rare})")
        return said

    def __str__(self) -> str:
        done = f"{self.rounds} rounds, {self.commits:,} acknowledged commits, {sum(self.faults.values()):,} faults"
        return f"{done}; " + (f"owed yet: {'; '.join(self.missing)}" if self.missing else "nothing is owed any more")

    def to_json(self) -> dict[str, Any]:
        return {"rounds": self.rounds, "commits": self.commits, "minutes": dict(self.minutes), "missing": self.missing}


def read_ledger(ledger: Path) -> list[Line]:
    """All rounds that a file knows of; none where there is no file.

    Errors: `InvalidRequest` if it holds other things.
    """
    try:
        texts = ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else []
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"--ledger {ledger} cannot be read ({error}): name a file", option="--ledger") from error
    return [_line_of(ledger, number, text) for number, text in enumerate(texts, start=1)]


def add_rounds(ledger: Path, run_folder: Path, system: System = REAL_SYSTEM) -> Owed:
    """Adds those rounds of a run that have a verdict and are not there yet; returns what is owed after them.

    Errors: `InvalidRequest` where the file is no ledger, or cannot be written.
    """
    lines = read_ledger(ledger)
    known = {line["id"] for line in lines}
    stamp = {"source": source(), "day": day(system)}
    found = [_round(path.parent) for path in sorted((run_folder / "rounds").glob("*/verdict.json"))]
    fresh = [{**line, **stamp} for line in found if line["id"] not in known]
    try:
        ledger.parent.mkdir(parents=True, exist_ok=True)
        with ledger.open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(line, sort_keys=True) + "\n" for line in fresh))
    except OSError as error:
        raise InvalidRequest(
            f"--ledger {ledger} cannot be written ({error}): name another file", option="--ledger"
        ) from error
    return Owed.after([*lines, *fresh])


def source() -> str:
    """What ran: the commit of the checkout that this module lies in, marked if it was changed; else the version."""
    here = Path(__file__).resolve()
    if _git(here, "ls-files", "--error-unmatch", here.name) is None:
        return f"lakelatch {lakelatch.__version__}"
    changed = _git(here, "status", "--porcelain", "--untracked-files=no", "--", *_CODE)
    return f"{_git(here, 'rev-parse', '--short=12', 'HEAD')}{' with changes' if changed else ''}"


def _git(module: Path, *arguments: str) -> str | None:
    """The answer of git; None if it fails or is not there."""
    try:
        done = subprocess.run(["git", *arguments], cwd=module.parent, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _round(folder: Path) -> Line:
    verdict, facts = (folder / "verdict.json").read_bytes(), (folder / "round.json").read_bytes()
    found, told = json.loads(verdict), json.loads(facts)
    kept = ("counts", "faults", "failpoints", "problems", "hudi_rs", "recovery_s", "lease_s")
    return {
        **{name: found[name] for name in kept if name in found},
        "id": hashlib.sha256(verdict + facts).hexdigest()[:16],
        "provider": told["provider"],
        "seed": told.get("seed"),
        "store": (told.get("settings") or {}).get("store", ""),
        "minutes": round((told["faults_ended_ns"] - told["began_ns"]) / 60e9, 3),
    }


def _line_of(ledger: Path, number: int, text: str) -> Line:
    try:
        line = json.loads(text)
        if line.keys() >= _NEEDED:
            return dict(line)
    except (ValueError, AttributeError):
        pass
    raise InvalidRequest(
        f"line {number} of --ledger {ledger} tells of no round: name another file, or mend the line", option="--ledger"
    )


def day(system: System = REAL_SYSTEM) -> str:
    """Today, as UTC has it."""
    return str(date(1970, 1, 1) + timedelta(days=system.realtime_ms() // _DAY_MS))
