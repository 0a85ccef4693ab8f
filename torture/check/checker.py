"""Checks a table, and the answers that its writers, readers and leases got, only by files and a history.

It shares no code with the product: a mistake that both made would go unseen. Rounds of torture, simulated runs and the
tests that kill writers at every step are all checked here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from lakelatch.errors import CorruptTable
from lakelatch.torture.check import order as order_checks
from lakelatch.torture.check import rows as row_checks
from lakelatch.torture.check import services as service_checks
from lakelatch.torture.check import several as several_checks
from lakelatch.torture.check import table as table_checks
from lakelatch.torture.check.evidence import Evidence, table_names
from lakelatch.torture.check.table_files import TableFiles
from lakelatch.torture.history.reading import read_history

_SHOWN_MAX = 20

# Of the files of any table that is not written to any more.
OF_TABLE = (
    table_checks.slots_are_gapless,
    table_checks.slot_times_increase,
    table_checks.operations_are_once,
    table_checks.slots_have_their_files,
    table_checks.content_belongs_to_slots,
    table_checks.completions_are_in_the_log,
    table_checks.times_are_unique,
    table_checks.instants_end_once,
    table_checks.rolled_back_stays_so,
    table_checks.committed_files_are_there,
    table_checks.every_file_is_named,
    table_checks.nothing_is_left_behind,
    service_checks.cancelled_in_the_log_stays_so,
)
# Of tables with Hudi's data files and plans.
OF_ROWS = (
    table_checks.plans_name_what_completed,
    table_checks.plans_start_from_the_last_base,
    table_checks.compactions_keep_every_row,
    service_checks.clusterings_keep_every_row,
    service_checks.live_files_are_there,
    service_checks.live_files_hold_all_rows,
)
# Of any table and its history.
OF_CALLERS = (
    table_checks.nothing_is_pending,
    row_checks.acknowledged_is_committed,
    row_checks.refused_is_not_committed,
)
OF_READERS = (
    order_checks.seen_in_order,
    order_checks.seen_is_there,
)
# Of a round.
OF_ROUND = (
    row_checks.nothing_else_went_wrong,
    row_checks.works_are_done_once,
    row_checks.works_were_asked_for,
    row_checks.works_have_all_rows,
    row_checks.journal_entries_are_once,
    row_checks.transfers_have_two_rows,
    row_checks.versions_have_no_gaps,
    row_checks.money_is_moved_only,
    row_checks.snapshots_are_prefixes,
    order_checks.readers_missed_no_commit,
    order_checks.files_never_change,
    order_checks.tokens_increase,
    order_checks.leases_exclude,
    order_checks.recovers_in_time,
    service_checks.cleans_keep_what_readers_need,
    service_checks.cancelled_is_not_committed,
    service_checks.served_is_completed,
)


# Of a round with several tables.
OF_SEVERAL = (
    several_checks.moves_are_whole,
    several_checks.answers_are_right,
    several_checks.nothing_waits_for_a_decision,
    several_checks.moments_show_what_was,
    several_checks.money_stays,
    several_checks.isolation_is_kept,
)


@dataclass(frozen=True)
class Verdict:
    """The outcome of a round. Nothing is wrong if there are no `problems`; `notes` are worth knowing, and allowed."""

    problems: list[str]
    counts: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    failpoints: dict[str, int] = field(default_factory=dict)
    recovery_s: float = 0.0
    lease_s: float = 0.0
    hudi_rs: str = ""
    operations: int = 0
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def find_problems(
    evidence: Evidence,
    of_table: Iterable[Callable[[TableFiles], Iterable[str]]],
    of_history: Iterable[Callable[[Evidence], Iterable[str]]],
) -> list[str]:
    """The problems that these checks find, as sentences, unreadable files first; some twenty of a check at most."""
    found = [problem for check in of_table for problem in _first(check(evidence.table))]
    found += [problem for check in of_history for problem in _first(check(evidence))]
    return [*_first(evidence.table.damage), *found]


def check_round(round_folder: Path) -> Verdict:
    """Checks a finished round, writes the verdict to `verdict.json` in its folder, and returns it.

    A file of the round that cannot be read is a problem, not an error.
    """
    try:
        tables = Evidence.of_tables(round_folder)
        names = table_names(len(tables))
        verdict = _verdict_on(tables[0], round_folder / names[0])
        if len(tables) > 1:
            others = (_verdict_on(each, round_folder / name) for name, each in zip(names[1:], tables[1:], strict=True))
            verdict = _of_several(dict(zip(names, (verdict, *others), strict=True)), tables, round_folder / "history")
    except (CorruptTable, OSError, ValueError, KeyError, TypeError) as error:
        verdict = Verdict(
            [f"the round cannot be checked: {type(error).__name__}: {error}"], hudi_rs="skipped: see above"
        )
    whole = round_folder / "verdict.json.new"  # a verdict is there or not, never half of one
    whole.write_text(json.dumps(verdict.to_json(), indent=1), encoding="utf-8")
    whole.replace(round_folder / "verdict.json")
    return verdict


def _verdict_on(evidence: Evidence, root: Path) -> Verdict:
    table, history = evidence.table, evidence.history
    problems = find_problems(evidence, (*OF_TABLE, *OF_ROWS), (*OF_CALLERS, *OF_READERS, *OF_ROUND))
    word, found = table_checks.by_hudi_rs(table, root)
    taken_s = order_checks.recovery_s(evidence)
    return Verdict(
        problems=[*problems, *found],
        counts=_counts(evidence),
        faults=dict(Counter(str(fault["fault"]) for fault in history.faults)),
        failpoints=dict(Counter(f"{hit['failpoint']}={hit['action']}" for hit in history.hits)),
        recovery_s=0.0 if taken_s is None else round(taken_s, 3),
        lease_s=evidence.lease_s,
        hudi_rs=word,
        operations=sum(work.calls for work in history.works.values()) + len(history.snapshots),
        notes=_notes(evidence, taken_s),
    )


def _of_several(verdicts: Mapping[str, Verdict], tables: Sequence[Evidence], history: Path) -> Verdict:
    """The verdict on all tables of a round; what all clients told is in that of the first."""
    first, counts = next(iter(verdicts.values())), Counter[str]()
    for one in verdicts.values():
        counts.update(one.counts)
    told = several_checks.Told.of(tables, read_history(history))
    found = [problem for check in OF_SEVERAL for problem in _first(check(told))]
    counts.update(moves=len(told.moves), moved=sum(map(told.is_done, told.moves)), moments=len(told.moments))
    words = {one.hudi_rs for one in verdicts.values()}
    return replace(
        first,
        problems=[*(f"{name}: {text}" for name, one in verdicts.items() for text in one.problems), *found],
        counts=dict(counts),
        recovery_s=max(one.recovery_s for one in verdicts.values()),
        hudi_rs=words.pop() if len(words) == 1 else "differs" if "differs" in words else "agreed where it could read",
        operations=sum(one.operations for one in verdicts.values()) + len(told.moments),
        notes=[*first.notes, *(note for one in verdicts.values() for note in one.notes if note not in first.notes)],
    )


def _first(problems: Iterable[str]) -> list[str]:
    """The problems of one check, cut short: one cause may show in every row."""
    found = iter(problems)
    shown = list(islice(found, _SHOWN_MAX))
    more = sum(1 for _ in found)
    return [*shown, f"and {more} more of this kind: {shown[-1]}"] if more else shown


def _counts(evidence: Evidence) -> dict[str, int]:
    history, table = evidence.history, evidence.table
    outcomes = Counter(line["outcome"] for work in history.works.values() for line in work.returns)
    killed = sum(not work.answered for work in history.works.values())
    uncertain = [work for work in history.works.values() if work.is_write and work.uncertain and not work.committed()]
    found = sum(work.name in table.instants_of_works for work in uncertain)
    errors = [line.get("error") or "" for work in history.works.values() for line in work.returns]
    return {
        "committed": outcomes["committed"],
        "refused": outcomes["refused"],
        "unknown": outcomes["unknown"] + killed,
        "failed": outcomes["failed"],
        "unknown_committed": found,
        "unknown_not_committed": len(uncertain) - found,
        "conflicts": sum("Conflict" in error for error in errors),
        "retries": sum(max(work.attempts - 1, 0) for work in history.works.values()),
        "rollbacks": sum(name.endswith(".rollback") for name in table.ended),
        "compactions": sum(commit.operation == "COMPACT" for commit in table.commits),
        "clusterings": sum(commit.operation == "CLUSTER" for commit in table.commits),
        "cleans": sum(name.endswith(".clean") for name in table.ended),
        "cleaned_files": len(table.cleaned),
        "archived": len(table.archived),
        "cancellations": len({line["instant"] for line in history.lines if line["event"] == "cancelled"}),
        "aborted": len(table.cancelled),
        "snapshots": len(history.snapshots),
        "timeline_files": len(table.timeline),
        "overlaps": len(order_checks.overlaps(evidence)),
    }


def _notes(evidence: Evidence, taken_s: float | None) -> list[str]:
    history = evidence.history
    notes = []
    if taken_s is None:
        notes.append("no commit was asked for and acknowledged after the faults had ended: recovery was not measured")
    back = len(order_checks.tokens_back(evidence))
    if back:
        notes.append(f"{back} tokens were not greater than those before")
    together = len(order_checks.overlaps(evidence))
    if together:
        notes.append(f"two holders believed {together} times that they held the same lock")
    for fault in history.faults:
        if history.healed_ns(fault) is None:
            notes.append(f"the fault {fault['id']} ({fault['fault']}) has no end in the history")
    return notes
