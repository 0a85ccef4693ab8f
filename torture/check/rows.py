"""Checks of a table's rows, and of the answers that its writers and readers got.

Each check yields sentences that name what is wrong.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from lakelatch.torture.check.evidence import BANK, JOURNAL, Evidence
from lakelatch.torture.history.reading import Line, Work


def nothing_else_went_wrong(evidence: Evidence) -> Iterator[str]:
    """Problems that the run itself, or one of its clients, has found."""
    yield from evidence.facts.get("problems") or ()
    before_ns: dict[str, int] = {}
    for line in evidence.history.lines:
        asked_ns, before_ns[line["process"]] = before_ns.get(line["process"], 0), int(line["at_ns"])
        if line["event"] == "missing" and not _was_too_slow(evidence, line, asked_ns):
            yield f"{line['process']} read the table and did not find {line['path'] or 'a file'}"
        elif line["event"] == "broken":
            yield f"{line['process']} found that {line['what']}"


def _was_too_slow(evidence: Evidence, line: Line, asked_ns: int) -> bool:
    """Whether a reader missed a file because it was cleaned, so many commits later that it was not retained."""
    retained = evidence.setting("commits_retained", float("inf"))
    if line["path"] not in evidence.table.cleaned:
        return False
    since = sum(
        asked_ns < one["at_ns"] <= line["at_ns"] and one["event"] == "return" and one["outcome"] != "refused"
        for one in evidence.history.lines
    )
    return bool(since >= retained)


def acknowledged_is_committed(evidence: Evidence) -> Iterator[str]:
    """An instant that was acknowledged as committed has completed, at that time."""
    table = evidence.table
    for work, line in _returns(evidence, "committed"):
        instant, completion = line["instant"], line["completion"]
        if work.kind == "plan":
            if instant and instant not in table.begun:
                yield f"{work.name} got the answer that {instant} is planned, and there is no such plan"
            continue
        found = table.by_instant.get(instant)
        if found is None:
            yield f"{work.name} got the answer that {instant} is committed, and it is not: this commit is lost"
        elif found.completion != completion:
            yield f"{work.name} got the answer that {instant} completed at {completion}, and it did as {found.name}"


def refused_is_not_committed(evidence: Evidence) -> Iterator[str]:
    """An instant that was refused is not committed. Plans may be carried out by another client."""
    for outcome in ("refused", "failed"):
        for work, line in _returns(evidence, outcome):
            if work.is_write and line["instant"] in evidence.table.by_instant:
                name = evidence.table.by_instant[line["instant"]].name
                yield f"{work.name} got the answer that {line['instant']} is not committed, and it is: {name}"


def works_are_done_once(evidence: Evidence) -> Iterator[str]:
    """No work has rows under two committed instants."""
    for name, instants in evidence.table.instants_of_works.items():
        if len(instants) > 1:
            yield f"the work {name} was done {len(instants)} times, by {', '.join(sorted(instants))}"


def works_were_asked_for(evidence: Evidence) -> Iterator[str]:
    """The rows in the table are of works that were asked for and not reported as failed."""
    for name, instants in evidence.table.instants_of_works.items():
        work = evidence.history.works.get(name)
        if work is None:
            yield f"no client has begun the work {name}, and {', '.join(sorted(instants))} has its rows"
        elif not work.uncertain and not work.committed():
            yield f"{', '.join(sorted(instants))} has rows of the work {name}, which was reported as failed"


def works_have_all_rows(evidence: Evidence) -> Iterator[str]:
    """An acknowledged commit holds as many rows as its answer said, all of its work."""
    table = evidence.table
    rows_of = {commit.instant: rows for commit, rows in table.written}
    for work, line in _returns(evidence, "committed"):
        rows = rows_of.get(line["instant"])
        if not work.is_write or rows is None:
            continue
        own = [row for row in rows if row.work == work.name]
        if len(own) != len(rows):
            yield f"{line['instant']} is the commit of {work.name}, and holds {len(rows) - len(own)} rows of others"
        if len(own) != line.get("rows", len(own)):
            yield f"{line['instant']} holds {len(own)} rows of {work.name}, and the answer to it says {line['rows']}"


def journal_entries_are_once(evidence: Evidence) -> Iterator[str]:
    """Every append is there whole: its entries are numbered from 0 without gaps, and each is there once."""
    for name, instants in evidence.table.instants_of_works.items():
        rows = [row for own in instants.values() for row in own if row.kind == JOURNAL]
        counted = Counter(row.key for row in rows)
        doubled = sorted(key for key, count in counted.items() if count > 1)
        if doubled:
            yield f"the entry {doubled[0]} is in the table {counted[doubled[0]]} times"
        work = evidence.history.works.get(name)
        asked = work.entries if work is not None and work.entries and counted else len(counted)
        missing = {f"{name}/{number}" for number in range(asked)} - counted.keys()
        if missing:
            yield f"the work {name} has {len(counted)} entries, and {min(missing)} is not among them"


def _returns(evidence: Evidence, outcome: str) -> Iterator[tuple[Work, Line]]:
    for work in evidence.history.works.values():
        for line in work.returns:
            if line["outcome"] == outcome:
                yield work, line


# -- the bank --------------------------------------------------------------------------------------------------------


def transfers_have_two_rows(evidence: Evidence) -> Iterator[str]:
    """A commit with bank rows is one whole transfer: two accounts, one work."""
    for commit, rows in evidence.bank:
        if len(rows) != 2 or len({row.key for row in rows}) != 2 or len({row.work for row in rows}) != 1:
            held = ", ".join(f"{row.key} of {row.work}" for row in rows)
            yield f"{commit.name} is not the two rows of one transfer: {held}"


def versions_have_no_gaps(evidence: Evidence) -> Iterator[str]:
    """Each account's versions are 1, 2, 3... in the order of the commits: nothing was overwritten unseen."""
    versions: dict[str, int] = {}
    for commit, rows in evidence.bank:
        for row in rows:
            before = versions.get(row.key, 0)
            if row.version != before + 1:
                yield f"{commit.name} wrote version {row.version} of {row.key} after version {before}"
            versions[row.key] = row.version


def money_is_moved_only(evidence: Evidence) -> Iterator[str]:
    """Each transfer takes from one account what it gives to the other, so that the sum stays 0."""
    balances: dict[str, int] = {}
    for commit, rows in evidence.bank:
        change = sum(row.balance - balances.get(row.key, 0) for row in rows)
        balances.update((row.key, row.balance) for row in rows)
        if change:
            yield f"{commit.name} made {change} out of nothing; the sum after it is {sum(balances.values())}"


@dataclass
class _Prefixes:
    """The states that a reader may see: after each commit, how many journal entries there are; and the accounts.

    `accounts` has one state for each transfer, `first` says after which commit it holds, by the commit's number.
    """

    accounts: list[dict[str, tuple[int, int]]] = field(default_factory=lambda: [{}])
    first: list[int] = field(default_factory=lambda: [0])
    entries: list[int] = field(default_factory=lambda: [0])

    @classmethod
    def of(cls, evidence: Evidence) -> _Prefixes:
        found, keys = cls(), set[str]()
        for number, (_, rows) in enumerate(evidence.table.written, start=1):
            keys.update(row.key for row in rows if row.kind == JOURNAL)
            found.entries.append(len(keys))
            moved = {row.key: (row.version, row.balance) for row in rows if row.kind == BANK}
            if moved:
                found.accounts.append({**found.accounts[-1], **moved})
                found.first.append(number)
        return found

    def matching(self, accounts: dict[str, tuple[int, int]], entries: int, least: int) -> int | None:
        """The first commit, not before `least`, after which the table was so."""
        for turn, state in enumerate(self.accounts):
            end = self.first[turn + 1] if turn + 1 < len(self.first) else len(self.entries)
            if state == accounts and end > least:
                start = max(self.first[turn], least)
                number = bisect_left(self.entries, entries, start, end)
                if number < end and self.entries[number] == entries:
                    return number
        return None


def snapshots_are_prefixes(evidence: Evidence) -> Iterator[str]:
    """A reader sees the table after some commit and all before it, and never goes back.

    Nor does it miss a commit acknowledged before it began, which was after its process wrote its last line.
    """
    prefixes = _Prefixes.of(evidence)
    acknowledged = _acknowledged(evidence)
    times = [time_ns for time_ns, _ in acknowledged]
    reached: dict[str, int] = {}
    before_ns: dict[str, int] = {}
    for line in evidence.history.lines:
        process = line["process"]
        asked_ns, before_ns[process] = before_ns.get(process, 0), int(line["at_ns"])
        if line["event"] != "snapshot":
            continue
        reader = f"{process} at {line['at_ns']}"
        accounts = {key: (version, balance) for key, (version, balance) in line["accounts"].items() if version}
        total = sum(balance for _, balance in accounts.values())
        if total:
            yield f"{reader} saw balances whose sum is {total}"
        least = reached.get(process, 0)
        turn = bisect_left(times, asked_ns)
        due = acknowledged[turn - 1][1] if turn else 0
        number = prefixes.matching(accounts, line["entries"], least)
        if number is None and prefixes.matching(accounts, line["entries"], 0) is None:
            yield f"{reader} saw what the table never was, with {line['entries']} entries and {_short(accounts)}"
        elif number is None:
            yield f"{reader} saw the table as it was before it had seen it before"
        else:
            reached[process] = number
            if prefixes.matching(accounts, line["entries"], max(least, due)) is None:
                yield f"{reader} did not see {evidence.table.written[due - 1][0].name}, acknowledged before it looked"


def _acknowledged(evidence: Evidence) -> list[tuple[int, int]]:
    """(time, number of the last commit that was acknowledged by then), by time."""
    numbers = {commit.instant: number for number, (commit, _) in enumerate(evidence.table.written, start=1)}
    answers = (line for _, line in _returns(evidence, "committed"))
    found, last = [], 0
    for time_ns, number in sorted((int(line["at_ns"]), numbers.get(line["instant"], 0)) for line in answers):
        last = max(last, number)
        found.append((time_ns, last))
    return found


def _short(accounts: dict[str, tuple[int, int]]) -> str:
    return ", ".join(f"{key} {balance} (version {version})" for key, (version, balance) in sorted(accounts.items()))
