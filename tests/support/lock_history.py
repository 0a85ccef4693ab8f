"""What clients of a lock saw, and a checker of it that knows nothing of any provider.

Each process writes its own file, a line for each thing that it saw, with times of the machine's steady clock, which
all processes of one machine share. Only what a client could act upon counts: that a lease was `valid()`, not that a
service had granted it.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path

from lakelatch.errors import LakelatchError
from lakelatch.locks.contract import LockProvider
from lakelatch.locks.lease import Lease
from lakelatch.system import REAL_SYSTEM, System

GRANTED, HELD, LOST, RELEASED, FAILED = "granted", "held", "lost", "released", "failed"


@dataclass(frozen=True)
class Entry:
    """One thing that a client saw. `called_ns` is before the call, `at_ns` after it; `result` is a release's answer."""

    kind: str
    client: str
    key: str
    token: int
    called_ns: int
    at_ns: int
    result: bool | None = None
    text: str = ""


class Recorder:
    """Appends entries to the file of one client."""

    def __init__(self, file: Path, client: str, system: System = REAL_SYSTEM) -> None:
        self._file = file
        self._client = client
        self.system = system

    def acquire(self, provider: LockProvider, key: str, timeout_s: float) -> Lease | None:
        """A lease, or None, which is noted with its reason."""
        called_ns = self.system.monotonic_ns()
        try:
            lease = provider.acquire(key, timeout_s)
        except LakelatchError as error:
            self._add(FAILED, key, 0, called_ns, text=str(error))
            return None
        self._add(GRANTED, key, lease.token, called_ns)
        return lease

    def look(self, lease: Lease) -> bool:
        """Whether the lease says that it is valid."""
        called_ns = self.system.monotonic_ns()
        valid = lease.valid()
        self._add(HELD if valid else LOST, lease.key, lease.token, called_ns)
        return valid

    def release(self, lease: Lease) -> bool | None:
        called_ns = self.system.monotonic_ns()
        try:
            result = lease.release()
        except LakelatchError as error:
            self._add(FAILED, lease.key, lease.token, called_ns, text=str(error))
            return None
        self._add(RELEASED, lease.key, lease.token, called_ns, result)
        return result

    def _add(self, kind: str, key: str, token: int, called_ns: int, result: bool | None = None, text: str = "") -> None:
        at_ns = self.system.monotonic_ns()
        entry = Entry(kind, self._client, key, token, called_ns, at_ns, result, text)
        with open(self._file, "a", encoding="utf-8") as out:
            out.write(json.dumps(asdict(entry)) + "\n")


def read_history(files: Iterable[Path]) -> list[Entry]:
    """All entries; a last line that a killed client left half written is left out."""
    entries = []
    for file in files:
        text = file.read_text(encoding="utf-8")
        entries += [Entry(**json.loads(line)) for line in text[: text.rfind("\n") + 1].splitlines()]
    return entries


@dataclass
class _Grant:
    entry: Entry
    believed_ns: int = 0  # the last moment of which the client says that it held the lease
    lost: bool = False
    ended: list[Entry] = field(default_factory=list)


def problems_in(entries: Iterable[Entry]) -> list[str]:
    """The broken promises, in words; empty if all is well.

    - Two clients never believed in a lease of one key at the same moment.
    - Tokens are unique, and grow: a request that began after another grant was known got a greater one, and so did
      whoever believed later.
    - A lease that was called lost was never called valid again, nor was its release said to have freed anything.
    """
    keys: dict[str, dict[tuple[str, int], _Grant]] = defaultdict(dict)
    problems = []
    for entry in sorted(entries, key=lambda entry: entry.at_ns):
        grants, place = keys[entry.key], (entry.client, entry.token)
        if entry.kind == GRANTED:
            if any(token == entry.token for _, token in grants):
                problems.append(f"token {entry.token} of {entry.key!r} was granted twice, at last to {entry.client}")
            grants[place] = _Grant(entry)
        elif place in grants:
            problems += _note(grants[place], entry)
    for key, grants in keys.items():
        problems += _overlaps(key, list(grants.values())) + _disorder(key, list(grants.values()))
    return problems


def _note(grant: _Grant, entry: Entry) -> list[str]:
    what = f"the lease of {entry.key!r} with token {entry.token} at {entry.client}"
    if entry.kind == HELD:
        grant.believed_ns = max(grant.believed_ns, entry.called_ns)
        return [f"{what} was lost, or released, and valid again"] if grant.lost or grant.ended else []
    if entry.kind == LOST:
        grant.lost = True
    if entry.kind == RELEASED:
        before, grant.ended = list(grant.ended), [*grant.ended, entry]
        if entry.result and (grant.lost or any(other.result for other in before)):
            return [f"{what} was lost, or released before, and its release claims to have freed it"]
        if entry.result:
            grant.believed_ns = max(grant.believed_ns, entry.called_ns)
    return []


def _overlaps(key: str, grants: list[_Grant]) -> list[str]:
    believed = sorted((g for g in grants if g.believed_ns > g.entry.at_ns), key=lambda g: g.entry.at_ns)
    problems = []
    for i, first in enumerate(believed):
        for second in believed[i + 1 :]:
            if second.entry.at_ns >= first.believed_ns:
                break
            both_ms = (min(first.believed_ns, second.believed_ns) - second.entry.at_ns) / 1e6
            problems.append(
                f"{first.entry.client} (token {first.entry.token}) and {second.entry.client} (token "
                f"{second.entry.token}) both held {key!r} for {both_ms:.1f} ms"
            )
    return problems


def _disorder(key: str, grants: list[_Grant]) -> list[str]:
    problems = []
    by_return = sorted(grants, key=lambda g: g.entry.at_ns)
    known_ns = [grant.entry.at_ns for grant in by_return]
    highest = list(accumulate((grant.entry.token for grant in by_return), max))
    for grant in grants:
        before = bisect_left(known_ns, grant.entry.called_ns)
        if before and grant.entry.token <= highest[before - 1]:
            problems.append(
                f"{grant.entry.client} got token {grant.entry.token} of {key!r} after {highest[before - 1]} had been "
                "granted"
            )
    believed = [g for g in by_return if g.believed_ns > g.entry.at_ns]
    for first, second in pairwise(believed):
        if second.entry.token <= first.entry.token:
            problems.append(f"token {second.entry.token} of {key!r} was held after token {first.entry.token}")
    return problems
