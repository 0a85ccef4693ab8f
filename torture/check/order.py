"""Checks of the order of events, and of how readers and holders of locks saw it.

Each check yields sentences that name what is wrong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import pairwise

from lakelatch.torture.check.evidence import LYING, Evidence
from lakelatch.torture.check.table_files import WRITES, completion_of
from lakelatch.torture.history.reading import WRITING_ROLES, Line

FORGETS = ("server_forgets", "replica_promoted")
LOSES_LEASES = (*FORGETS, "session_expired")
_NANO = 1_000_000_000


def seen_in_order(evidence: Evidence) -> Iterator[str]:
    """After a reader saw a completion time, nothing with a smaller one appears."""
    for process, names in seen_by_readers(evidence).items():
        for before, after in pairwise(names):
            if not completion_of(before) < completion_of(after):
                yield f"{process} saw {after} appear after {before}"


def seen_is_there(evidence: Evidence) -> Iterator[str]:
    """A completed file that a reader saw does not disappear."""
    there = set(evidence.table.ended)
    for process, names in seen_by_readers(evidence).items():
        for name in names:
            if name not in there:
                yield f"{process} saw {name}, and it is gone"


def readers_missed_no_commit(evidence: Evidence) -> Iterator[str]:
    """A reader has seen every write below the last that it saw, and what was acknowledged while it was at work."""
    writes = [name for name in evidence.table.ended if name.rpartition(".")[2] in WRITES]
    acknowledged = {
        line["instant"]
        for work in evidence.history.works.values()
        for line in work.committed()
        if line["at_ns"] <= evidence.healed_ns and line["completion"]
    }
    before: dict[str, set[str]] = {}
    for process, names in seen_by_readers(evidence).items():
        own = before.setdefault(process.rpartition(".")[0] or process, set())
        own.update(names)
        last = max(map(completion_of, names), default="")
        stayed = evidence.history.finished.get(process, 0) > evidence.healed_ns
        for name in writes:
            due = completion_of(name) <= last or (stayed and name.partition("_")[0] in acknowledged)
            if due and name not in own:
                yield f"{process} never saw {name}"


def files_never_change(evidence: Evidence) -> Iterator[str]:
    """Completed files hold now what readers saw in them."""
    digests: dict[str, str] = {}
    for line in evidence.history.seen:
        for name, digest in (line.get("sha") or {}).items():
            data = evidence.table.content(name)
            if name not in digests and data is not None:
                digests[name] = hashlib.sha256(data).hexdigest()
            if name in digests and not digests[name].startswith(digest):
                yield f"{name} has changed since {line['process']} saw it"


def seen_by_readers(evidence: Evidence) -> dict[str, list[str]]:
    """The files that each process of a tail reader saw, in order; in the order in which the processes began."""
    found: dict[str, list[str]] = {
        line["process"]: []
        for line in evidence.history.lines
        if line["event"] == "started" and line.get("role") == "tail"
    }
    for line in evidence.history.seen:
        found.setdefault(line["process"], []).extend(line["files"])
    return found


# -- leases ----------------------------------------------------------------------------------------------------------


def tokens_increase(evidence: Evidence) -> Iterator[str]:
    """A lease requested after another one was granted has a greater token, unless the server lost state."""
    if evidence.provider == LYING:
        return
    for before, after in tokens_back(evidence):
        if not _lost_between(evidence, before["asked_ns"], after["granted_ns"], FORGETS):
            yield (
                f"{after['process']} was granted {after['key']!r} with token {after['token']}, after "
                f"{before['process']} had it with token {before['token']}"
            )


def tokens_back(evidence: Evidence) -> list[tuple[Line, Line]]:
    """Pairs of leases of one key where the later one has no greater token; one pair for each later lease."""
    found = []
    for key in {line["key"] for line in evidence.history.leases}:
        leases = [line for line in evidence.history.leases if line["key"] == key]
        granted = sorted(leases, key=lambda line: int(line["granted_ns"]))
        greatest: list[Line] = []  # by grant, without those that a later one exceeds
        turn = 0
        for lease in sorted(leases, key=lambda line: int(line["asked_ns"])):
            while turn < len(granted) and granted[turn]["granted_ns"] < lease["asked_ns"]:
                while greatest and greatest[-1]["token"] <= granted[turn]["token"]:
                    greatest.pop()
                greatest.append(granted[turn])
                turn += 1
            # The latest of them: what a server forgot before it excuses nothing that happened since.
            other_write = next((one for one in reversed(greatest) if one["token"] >= lease["token"]), None)
            if other_write is not None:
                found.append((other_write, lease))
    return found


def _lost_between(evidence: Evidence, start_ns: int, end_ns: int, kinds: tuple[str, ...]) -> bool:
    """Whether the lock server lost something at some time between."""
    for fault in evidence.history.faults:
        if fault["fault"] in kinds:
            healed_ns = evidence.history.healed_ns(fault)
            if fault["at_ns"] < end_ns and (healed_ns is None or healed_ns > start_ns):
                return True
    return False


def leases_exclude(evidence: Evidence) -> Iterator[str]:
    """No two leases of one key are valid at once, unless the server lost them."""
    if evidence.provider == LYING:
        return
    for first, second in overlaps(evidence):
        if not _lost_between(evidence, first["asked_ns"], second["granted_ns"], LOSES_LEASES):
            both_ns = min(first["until_ns"], second["until_ns"]) - second["granted_ns"]
            yield (
                f"{first['process']} (token {first['token']}) and {second['process']} (token {second['token']}) "
                f"both held {first['key']!r} for {both_ns / 1e6:.3f} ms"
            )


def overlaps(evidence: Evidence) -> list[tuple[Line, Line]]:
    """Pairs of leases of one key that both were valid at one moment; the one that was granted first comes first."""
    found = []
    held: dict[str, list[Line]] = {}
    valid = [line for line in evidence.history.leases if line["valid"]]
    for lease in sorted(valid, key=lambda line: int(line["granted_ns"])):
        others = [one for one in held.get(lease["key"], []) if one["until_ns"] > lease["granted_ns"]]
        found += [(one, lease) for one in others if lease["until_ns"] > lease["granted_ns"]]
        held[lease["key"]] = [*others, lease]
    return found


# -- recovery --------------------------------------------------------------------------------------------------------


def recovery_s(evidence: Evidence) -> float | None:
    """From the end of all faults to the first commit that was both asked for and acknowledged after it.

    None if there was none.
    """
    found = [
        line["at_ns"]
        for work in evidence.history.works.values()
        if work.kind != "plan" and min(evidence.history.call_times.get(work.name, [0])) > evidence.healed_ns
        for line in work.committed()
    ]
    return (min(found) - evidence.healed_ns) / _NANO if found else None


def recovers_in_time(evidence: Evidence) -> Iterator[str]:
    """Once all faults have ended, a client commits within two lease times and what the round allows on top."""
    bound_s = 2 * evidence.lease_s + evidence.setting("recovery_bound_s", 0.0)
    taken_s = recovery_s(evidence)
    asked = any(
        work.role in WRITING_ROLES and min(evidence.history.call_times.get(work.name, [0])) > evidence.healed_ns
        for work in evidence.history.works.values()
    )
    if taken_s is None and asked:
        yield "no client could commit after the faults had ended"
    elif taken_s is not None and taken_s > bound_s:
        yield f"the first commit after the faults took {taken_s:.2f} s, and {bound_s:.2f} s are allowed"
