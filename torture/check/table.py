"""Checks of a table's files alone, independent of the history.

Each check yields sentences that name what is wrong; none of them changes anything.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from lakelatch.torture.check.evidence import Evidence
from lakelatch.torture.check.log_reading import Row
from lakelatch.torture.check.table_files import (
    COMPLETED_AS,
    Commit,
    Operation,
    TableFiles,
    completion_of,
    requested_of,
)

LEFTOVER_FOLDERS = (
    ".hoodie/.heartbeat",
    ".hoodie/.temp",
    ".hoodie/.lakelatch/open",
    ".hoodie/.lakelatch/beats",
    ".hoodie/.lakelatch/notes",
)
CONTENT = ".hoodie/.lakelatch/content"
_BASE_NAME = re.compile(r"([^_/]+)_[^_/]+_([0-9]{17})\.parquet")
_COMPACTED_MARK = "_2147483646-0-0"  # at the end of the name of a log that repeats others


def slots_are_gapless(table: TableFiles) -> Iterator[str]:
    """From the watermark on, and from the first slot on if the watermark is below it."""
    if not table.slots:
        if table.commits:
            yield f"the commit log is empty, and {len(table.commits)} writes have completed"
        return
    there = {slot["number"] for slot in table.slots}
    first = min(max(table.slots[-1]["watermark"], 1), table.live_slots[0]["number"])
    gone = [number for number in range(first, table.slots[-1]["number"]) if number not in there]
    if gone:
        yield f"slots at or above {first} are gone: {some(gone)}"


def slot_times_increase(table: TableFiles) -> Iterator[str]:
    """Each slot's time is greater than that of the slot before it."""
    for before, after in pairwise(table.live_slots):
        if not before["time"] < after["time"]:
            yield f"slot {after['number']} has the time {after['time']}, and the one before it {before['time']}"


def operations_are_once(table: TableFiles) -> Iterator[str]:
    """An operation is in the log once, however often it was sent; a restore once as planned, and once as completed."""
    of_restores = {slot["number"]: slot["kind"] for slot in table.live_slots if slot["action"] == "restore"}
    sent = Counter((slot["operation_id"], of_restores.get(slot["number"], "")) for slot in table.live_slots)
    for (operation, _), count in sent.items():
        if count > 1:
            yield f"the operation {operation} is in the commit log {count} times"


def slots_have_their_files(table: TableFiles) -> Iterator[str]:
    """Each file is there and says what its slot says; a plan's goes when the plan is rolled back, or was cancelled."""
    gone = {victim for _, victim in table.rolled_back()} | table.aborted
    for slot in table.live_slots:
        if slot["kind"] in ("locks", "cancel", "withdraw") or (slot["kind"] == "plan" and slot["instant"] in gone):
            continue
        if slot["action"] == "savepoint":  # given up by removing its file, without a slot
            continue
        if _has_been_put_away(table, slot):
            continue
        shown = table.content(slot["file"])
        if shown is None:
            yield f"slot {slot['number']} has no file {slot['file']}"
        elif (content := _content(table, slot)) is not None and shown != content:
            yield f"{slot['file']} says something else than slot {slot['number']}"


def _has_been_put_away(table: TableFiles, slot: dict[str, Any]) -> bool:
    """Whether a slot's file is one that has to go, with its plan's end or with the archive."""
    if slot["kind"] == "complete":
        return False  # its row in the history has what its file said
    if slot["instant"] in table.archived_instants:
        return True
    if slot["kind"] == "plan":
        return slot["instant"] in table.cancelled
    return slot["kind"] == "abort" and bool(table.archived) and slot["instant"] < table.first_active


def _content(table: TableFiles, slot: dict[str, Any]) -> bytes | None:
    """The content that a slot wants in its file; None if it was in a file of its own that is no longer there."""
    if not slot.get("content_path"):
        return base64.b64decode(slot["content"])
    return table.files.get(slot["content_path"])


def content_belongs_to_slots(table: TableFiles) -> Iterator[str]:
    """Each file of contents is of a slot that is there; checked only where no removal can have failed."""
    if table.every_slot:
        wanted = {slot["content_path"] for slot in table.slots}
        for name in table.below(CONTENT):
            if f"{CONTENT}/{name}" not in wanted:
                yield f"content {name} is of no slot"


def completions_are_in_the_log(table: TableFiles) -> Iterator[str]:
    """Everything that completed since the first slot that is still there is in a slot."""
    if table.live_slots:
        shown = {slot["file"] for slot in table.live_slots}
        for name in table.ended:
            if completion_of(name) >= table.live_slots[0]["time"] and name not in shown:
                yield f"{name} is in no slot of the commit log"


def times_are_unique(table: TableFiles) -> Iterator[str]:
    """No two instants complete at one time, and none before it began."""
    for time, count in Counter(map(completion_of, table.ended)).items():
        if count > 1:
            yield f"{count} instants completed at {time}"
    for name in table.ended:
        if not requested_of(name) < completion_of(name):
            yield f"{name} completed before it began"


def instants_end_once(table: TableFiles) -> Iterator[str]:
    """An instant has one action and one end."""
    for start, count in Counter(map(requested_of, table.ended)).items():
        if count > 1:
            yield f"the instant {start} ended {count} times"
    for start, actions in table.begun.items():
        if len(actions) > 1:
            yield f"two instants have the requested time {start}: {some(sorted(actions))}"
    for name in table.ended:
        ended_as = name.rpartition(".")[2]
        for action in table.begun.get(requested_of(name), set()):
            if COMPLETED_AS.get(action, action) != ended_as:
                yield f"{name} was begun as {action}"


def rolled_back_stays_so(table: TableFiles) -> Iterator[str]:
    """A rolled back instant is neither committed nor pending."""
    for name, victim in table.rolled_back():
        if victim in table.by_instant:
            yield f"{victim} was rolled back by {name}, and is committed as {table.by_instant[victim].name}"
        if victim in table.begun:
            yield f"{victim} was rolled back by {name}, and is pending"
    aborted = {slot["target"]: slot["number"] for slot in table.live_slots if slot["kind"] == "rollback"}
    for slot in table.live_slots:
        if slot["kind"] == "complete" and slot["instant"] in aborted:
            yield f"slot {slot['number']} completes {slot['instant']}, which slot {aborted[slot['instant']]} aborts"


def nothing_is_pending(evidence: Evidence) -> Iterator[str]:
    """But for plans of compactions, unless the round has ended with the execution of all there were."""
    allowed = set() if evidence.facts.get("ended_ns") else {"compaction", "logcompaction"}
    for start, actions in evidence.table.pending.items():
        if not actions <= allowed:
            yield f"{start} is still pending: {some(sorted(actions))}"


def committed_files_are_there(table: TableFiles) -> Iterator[str]:
    """Every data file that a commit names is there and has content."""
    sizes = table.data_files()
    for commit in table.commits:
        for path in commit.paths:
            if path not in sizes and path in table.cleaned:
                continue
            if path not in sizes:
                yield f"{path} is missing, and {commit.name} names it"
            elif not sizes[path]:
                yield f"{path} is empty, and {commit.name} names it"


def every_file_is_named(table: TableFiles) -> Iterator[str]:
    """Files with content that no commit names and no clean will take. Plans that wait may have their files already.

    Those of a replaced file group are cleaned with the group: the files that a clustering made of a part that was
    cancelled, and those that an earlier try of a compaction made before the group was replaced.
    """
    named = {path for commit in table.commits for path in commit.paths}
    plans = {start for start, actions in table.pending.items() if actions & {"compaction", "logcompaction"}}
    gone = {
        group: commit.completion
        for commit in reversed(table.commits)  # by completion: the first to replace a group
        for group in commit.replaced_groups
    }
    rewrites = {commit.instant: commit.completion for commit in table.commits if commit.is_rewrite}
    for path, size in table.data_files().items():
        partition, _, name = path.rpartition("/")
        base = _BASE_NAME.fullmatch(name)
        waits = (base is not None and base[2] in plans) or (bool(plans) and path.endswith(_COMPACTED_MARK))
        group = (partition, name.partition("_")[0])
        if base is not None and group in gone and gone[group] <= rewrites.get(base[2], ""):
            continue
        if size and path not in named and not waits:
            yield f"{path} has content, and no commit names it"


def nothing_is_left_behind(table: TableFiles) -> Iterator[str]:
    """Folders of heartbeats, markers, claims and notes are empty."""
    for folder in LEFTOVER_FOLDERS:
        for path in sorted(path for path in table.files if path.startswith(f"{folder}/")):
            yield f"{path} was left behind"


def plans_name_what_completed(table: TableFiles) -> Iterator[str]:
    """A plan takes exactly those logs of a file group that completed before it and that no earlier plan took."""
    if any("logcompaction" in actions for actions in table.begun.values()):
        return  # compacted logs stand for others, and then a plan names those
    plans = sorted(start for start, actions in table.begun.items() if "compaction" in actions)
    taken: dict[tuple[str, str], set[str]] = {}
    for plan in plans:
        before = [commit for commit in table.commits if not commit.is_rewrite and commit.completion < plan]
        logs: dict[tuple[str, str], set[str]] = {}
        for commit in before:
            for group, path in zip(commit.groups, commit.paths, strict=True):
                logs.setdefault(group, set()).add(path)
        for operation in table.plan(plan):
            group = (operation.partition, operation.file_id)
            earlier = taken.setdefault(group, set())
            wanted = logs.get(group, set()) - earlier
            wrong = wanted ^ set(operation.logs)
            if wrong:
                verb = "leaves out" if wrong & wanted else "takes too many"
                yield f"the compaction {plan} {verb} logs of {operation.file_id}: {some(sorted(wrong))}"
            earlier |= wanted


def plans_start_from_the_last_base(table: TableFiles) -> Iterator[str]:
    """A plan builds on the base file that the last service before it made of the same file group."""
    compactions = [commit for commit in table.commits if commit.operation in ("COMPACT", "CLUSTER")]
    for plan in sorted(start for start, actions in table.begun.items() if "compaction" in actions):
        last: dict[tuple[str, str], str] = {}
        for commit in compactions:  # by completion
            if commit.instant < plan:
                made = zip(commit.groups, commit.paths, strict=True)
                last.update((group, path) for group, path in made if path.endswith(".parquet"))
        for operation in table.plan(plan):
            wanted = last.get((operation.partition, operation.file_id))
            if operation.base != wanted:
                yield f"the compaction {plan} builds {operation.file_id} on {operation.base}, and {wanted} was its base"


def compactions_keep_every_row(table: TableFiles) -> Iterator[str]:
    """A base file holds the greatest version of each key of what it was made from, once."""
    for commit in table.commits:
        if commit.operation != "COMPACT":
            continue
        named = zip(commit.groups, commit.paths, strict=True)
        made = {group: path for group, path in named if path.endswith(".parquet")}
        for operation in table.plan(commit.instant):
            path = made.get((operation.partition, operation.file_id))
            if path is None:
                yield f"the compaction {commit.name} made no base file of {operation.partition}/{operation.file_id}"
                continue
            yield from rewritten_as_it_was(table, commit, operation, path, "logs say")


def rewritten_as_it_was(
    table: TableFiles, commit: Commit, operation: Operation, path: str, sources_say: str
) -> Iterator[str]:
    """A file that a service made holds the last row of each key of its sources, once."""
    wanted = fold(row for source in filter(None, (operation.base, *operation.logs)) for row in table.rows(source))
    rows = table.rows(path)
    found = {row.key: row for row in rows}
    if len(found) != len(rows):
        yield f"{path} of {commit.name} holds a key twice"
    if wrong := differing(wanted, found):
        yield f"{path} of {commit.name} is not what its {sources_say} about {some(wrong)}"


def differing(wanted: Mapping[str, Row], found: Mapping[str, Row]) -> list[str]:
    """The keys that have another row, or none, on one side."""
    return sorted(key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key))


def fold(rows: Iterable[Row]) -> dict[str, Row]:
    """The row of the greatest version of each key; the later one of equals."""
    found: dict[str, Row] = {}
    for row in rows:
        before = found.get(row.key)
        if before is None or row.version >= before.version:
            found[row.key] = row
    return found


def by_hudi_rs(table: TableFiles, root: Path) -> tuple[str, list[str]]:
    """Reads the table with hudi-rs: a word ("agreed", "differs", "skipped: ..."), and the problems."""
    try:
        import hudi
        import pyarrow
    except ImportError:
        return "skipped: hudi is not installed (pip install hudi)", []
    if not table.commits:
        return "skipped: nothing was committed", []
    try:
        opened = hudi.HudiTableBuilder.from_base_uri(str(root)).build()
        names = ("key", "version", "balance", "work", "kind")
        batches = [pyarrow.record_batch(batch) for batch in opened.read(hudi.HudiReadOptions())]
        rows = [Row(*(row[name] for name in names)) for batch in batches for row in batch.to_pylist()]
    except Exception as error:  # the library raises whatever the files provoke
        return "differs", [f"hudi-rs cannot read the table: {type(error).__name__}: {error}"]
    wanted = fold(row for _, own in table.written for row in own)
    found = {row.key: row for row in rows}
    wrong = differing(wanted, found)
    problems = [f"hudi-rs reads something else than was committed of {some(wrong)}"] if wrong else []
    if len(found) != len(rows):
        problems.append(f"hudi-rs reads keys twice: {len(rows)} rows of {len(found)} keys")
    return ("differs" if problems else "agreed"), problems


def some(values: list[Any]) -> str:
    """The first of many, for a sentence."""
    more = f" and {len(values) - 5} more" if len(values) > 5 else ""
    return ", ".join(map(str, values[:5])) + more
