"""Checks of a table whose data files state, in JSON, what their writer had read and done.

Simulated processes write such tables, and those that are killed at every step. A file states its `group`, whether its
writer was `optimistic`, its `base` (the instants of the group that were read), and, where there is one, the `work` that
it is of, a `balance`, or an `amount` with the groups that were replaced (`took`). Plans list completed files.
Each check yields sentences that name what is wrong.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from lakelatch.torture.check.evidence import Evidence
from lakelatch.torture.check.order import seen_by_readers
from lakelatch.torture.check.table_files import SERVICES, TIMELINE, Commit, TableFiles, completion_of, requested_of

CHECKPOINT = "_hudi_streaming_sink_checkpoint"


def writes_saw_all_before(table: TableFiles) -> Iterator[str]:
    """Each optimistic write was based on everything that had completed before it in its group: no update is lost."""
    before: dict[str, list[str]] = {}
    for commit in table.commits:
        for wrote in statements_of(table, commit):
            earlier = before.setdefault(wrote["group"], [])
            if wrote["optimistic"] and wrote["base"] != sorted(earlier) != _with_rows(table, wrote, earlier):
                yield f"{commit.instant} overwrote {wrote['group']} without having seen all"
            earlier.append(commit.instant)


def _with_rows(table: TableFiles, wrote: dict[str, Any], earlier: Collection[str]) -> list[str]:
    """Its base without commits that have left the group nothing but empty files, which bar names.

    An empty file of what has not completed does not excuse that it was read.
    """
    group = wrote["group"]
    empty = [path.rpartition("/")[2] for path, data in table.files.items() if not data and path.endswith(".log")]
    barring = {name[:-4].rpartition("_")[2] for name in empty if name.startswith(f"{group}_")}
    completed = (commit for instant, commit in table.by_instant.items() if instant in barring)
    unused = {one.instant for one in completed if all(of["group"] != group for of in statements_of(table, one))}
    return [one for one in wrote["base"] if one in earlier or one not in unused]


def balances_add_up(table: TableFiles) -> Iterator[str]:
    """The sum of the balances is 0 after every commit."""
    balances: dict[str, int] = {}
    for commit in table.commits:
        wrote = statements_of(table, commit)
        balances.update((one["group"], one.get("balance", 0)) for one in wrote if one["optimistic"])
        if sum(balances.values()):
            yield f"money was made or lost by {commit.instant}: {balances}"


def plans_list_what_completed(table: TableFiles) -> Iterator[str]:
    """A plan lists exactly the delta commits whose completion times are below its own."""
    deltas = [name for name in table.ended if name.endswith(".deltacommit")]
    for plan, actions in table.begun.items():
        requested = table.files.get(f"{TIMELINE}/{plan}.compaction.requested")
        if "compaction" in actions and requested is not None:
            wrong = {name for name in deltas if completion_of(name) < plan} ^ set(json.loads(requested))
            if wrong:
                yield f"the plan {plan} includes {sorted(wrong)} wrongly"


def replaced_is_what_was_there(table: TableFiles) -> Iterator[str]:
    """A replace commit takes away exactly what had completed before it, and nobody writes to that afterwards."""
    amounts: dict[str, int] = {}  # of the groups that are not replaced
    for commit in table.commits:
        wrote = [one for one in statements_of(table, commit) if "amount" in one]
        replaced = commit.replaced.get("shelf")
        if replaced is not None:
            if sorted(replaced) != sorted(amounts):
                yield f"{commit.instant} replaced {sorted(replaced)} of {sorted(amounts)}"
            for one in wrote:
                same = one["took"] == sorted(amounts) and one["amount"] == sum(amounts.values())
                if one["optimistic"] and not same:
                    yield f"{commit.instant} replaced more than it had read"
            amounts = {}
        for one in wrote:
            if one["group"] != f"s{commit.instant}" and one["group"] not in amounts:
                yield f"{commit.instant} wrote to {one['group']}, which was replaced"
            amounts[one["group"]] = amounts.get(one["group"], 0) + one["amount"]


def works_are_done_once_if_known(evidence: Evidence) -> Iterator[str]:
    """What was asked for once is done once, unless its caller was told that nobody knows, or died meanwhile."""
    table, killed = evidence.table, int(evidence.facts.get("killed", 0))
    done = Counter(
        work
        for commit in table.commits
        for work in {str(one.get("work", "")) for one in statements_of(table, commit)} - {""}
    )
    works = evidence.history.works
    # Two changes of one table in a transaction have one caller.
    twice = {name.removesuffix(" again") for name, count in done.items() if count > 1}
    doubled = {name for name in twice if not (name in works and works[name].uncertain)}
    if len(doubled) > killed:
        yield f"done more than once, and only {killed} callers died: {sorted(doubled)}"


def conflicts_name_their_winners(evidence: Evidence) -> Iterator[str]:
    """Of two that are at work the earlier one goes on, unless that is a plan; and who is said to have completed has."""
    there, table = evidence.table.by_instant, evidence.table
    ended = {requested_of(name) for name in table.ended}  # rollbacks as well: what they undid was in the way
    plans = table.aborted | {start for start, actions in table.begun.items() if actions & SERVICES}
    for line in evidence.history.lines:
        if line["event"] == "conflict":
            loser, winner = line["instant"], line["winner"]
            if loser in there:
                yield f"{loser} lost to {winner}, and has completed"
            if line["inflight"] and not winner < loser and winner not in plans:
                yield f"{loser} lost to {winner}, which began later and was at work"
            if not line["inflight"] and winner not in ended:
                yield f"{loser} lost to {winner}, which has not completed"


def batches_are_once(evidence: Evidence) -> Iterator[str]:
    """Each batch that somebody was told to be written is there once, under the instant that was told."""
    instants: dict[int, list[str]] = {}
    for commit in evidence.table.commits:
        for number in json.loads(commit.extra.get(CHECKPOINT, "{}")).values():
            instants.setdefault(int(number), []).append(commit.instant)
    for number, found in instants.items():
        if len(found) > 1:
            yield f"batch {number} is there {len(found)} times: {found}"
    for line in evidence.history.lines:
        if line["event"] == "batch" and line["instant"] not in instants.get(line["number"], ()):
            yield f"batch {line['number']} was said to be that of {line['instant']}"


def statements_of(table: TableFiles, commit: Commit) -> list[dict[str, Any]]:
    """What the log files of a commit state; nothing for those that are missing or empty."""
    found = (table.files.get(path) for path in commit.paths if path.endswith(".log"))
    return [json.loads(data) for data in found if data]


def readers_saw_everything(evidence: Evidence) -> Iterator[str]:
    """A reader that followed until the last write has seen every completed file, not of writes only."""
    for process, names in seen_by_readers(evidence).items():
        for name in sorted(set(evidence.table.ended) - set(names)):
            yield f"{process} missed {name}"


# Of tables with such files, and of a simulated run.
OF_STATEMENTS = (writes_saw_all_before, balances_add_up, plans_list_what_completed, replaced_is_what_was_there)
OF_SIMULATION = (
    readers_saw_everything,
    works_are_done_once_if_known,
    conflicts_name_their_winners,
    batches_are_once,
)
