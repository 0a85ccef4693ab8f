"""Partitions in which writes take the place of what is there: a shelf by replace commits, a ledger by copying on write.

What a replace commit takes away is chosen by the product, at its place in the log. Only what there was before is found
here, since simulated files are no slices. Each write to the ledger puts all that was there when it began into its one
file group's next base file. Which file that is, and what is committed, is the product's; only the merge is simulated.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from actors import Actor, aborted_on_error, instant_of
from stock import CONFIG, table_of

from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.table.table import OpenedTable
from lakelatch.engine.write.replace import Replacement, none_else
from lakelatch.engine.write.tasks.merge_task import MergeTask
from lakelatch.errors import LakelatchError, TransactionEnded, WriteConflict
from lakelatch.format.file_groups import replace_commit
from lakelatch.format.names import BaseFile, parse_data_file, planned_base_file
from lakelatch.format.slices.live_groups import LiveSlices
from lakelatch.storage.contract import Storage
from lakelatch.timeline.actions import COMMIT, INSERT_OVERWRITE, REPLACE_COMMIT
from lakelatch.timeline.instant import TIMELINE_FOLDER, parse_file_name
from lakelatch.timeline.log.whole_timeline import WholeTimeline
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.timeline.table_config import COPY_ON_WRITE
from lakelatch.transactions.base.settings import NON_BLOCKING, OPTIMISTIC
from lakelatch.transactions.early.task_files import TaskFiles

SHELF = "shelf"
LEDGER = "ledger"
_CONFIG = replace(CONFIG, table_type=COPY_ON_WRITE, bucket_count=1)
_OPTIONS = Call({"hoodie.table.type": COPY_ON_WRITE, "hoodie.write.concurrency.mode": OPTIMISTIC}).write()
_ATTEMPTS = 4
_NAMELESS = "has content, and no commit names it"


class _ShelfReplacement(Replacement):
    def __init__(self, storage: Storage, metadata: CommitMetadata, found: _Found, non_blocking: bool) -> None:
        self._table = OpenedTable(storage, CONFIG, pa.schema([]))
        self._metadata, self._choose, self._non_blocking = metadata, none_else, non_blocking
        self._written = {SHELF}
        self._show(found)
        self.replaced = 0

    def _look(self) -> None:
        self._show(_Found(self._table.storage))

    def _show(self, found: _Found) -> None:
        self._seen, self._looked_at = found.seen, found.looked_at
        self._live, self._empty = frozenset((SHELF, group) for group in found.groups), frozenset()


class _Found:
    """The shelf as a reader finds it: who has written to each group that was not replaced, and all amounts."""

    def __init__(self, storage: Storage) -> None:
        whole = WholeTimeline.load(storage)
        times, self.looked_at = whole.all_completion_times(), whole.latest
        self.seen = frozenset(instant.file_name for instant in whole.active.completed)
        replaces = [replace_commit(storage, instant) for instant in whole.completed((REPLACE_COMMIT,))]
        gone = {group for one in replaces for _, group in one.replaced_file_groups()}
        self.groups: dict[str, set[str]] = {}
        self.amount = 0
        for name in storage.list(SHELF).files:
            group, instant = name.partition("_")[0], instant_of(name)
            if instant in times and group not in gone:
                content = storage.read(f"{SHELF}/{name}")
                if content:  # or it only bars the name of an attempt that was given up
                    self.groups.setdefault(group, set()).add(instant)
                    self.amount += int(json.loads(content)["amount"])


def put(actor: Actor) -> None:
    """Adds an amount, in a group of its own or in one that is there; that one must not have been replaced meanwhile."""
    optimistic = actor.random.random() < 0.7
    manager = actor.manager(OPTIMISTIC if optimistic else NON_BLOCKING)
    manager.recover()
    transaction = manager.begin()
    with aborted_on_error(transaction):
        group, base = f"s{transaction.instant}", set[str]()
        if actor.random.random() < 0.6:
            groups = _Found(actor.storage).groups
            if groups:
                group = actor.random.choice(sorted(groups))
                base = groups[group]
        content = {"group": group, "base": sorted(base), "optimistic": optimistic, "amount": actor.random.randrange(99)}
        actor.commit(transaction, CommitMetadata((actor.add_file(transaction, group, content, SHELF),), "UPSERT"))


def overwrite(actor: Actor) -> None:
    """Puts one group in place of all; under optimistic control with exactly the amounts that it takes away."""
    optimistic = actor.random.random() < 0.7
    manager = actor.manager(OPTIMISTIC if optimistic else NON_BLOCKING)
    manager.recover()
    transaction = manager.begin("replacecommit")
    with aborted_on_error(transaction):
        found, group = _Found(actor.storage), f"s{transaction.instant}"
        content: dict[str, Any] = {"group": group, "base": [], "optimistic": optimistic, "amount": found.amount}
        stat = actor.add_file(transaction, group, {**content, "took": sorted(found.groups)}, SHELF)
        metadata = CommitMetadata((stat,), INSERT_OVERWRITE.upper())
        replacement = _ShelfReplacement(actor.storage, metadata, found, not optimistic)
        actor.commit(transaction, metadata, replacement.check)


# -- the ledger --------------------------------------------------------------------------------------------------------


def but_of_late_requests(problems: Iterable[str], names: Collection[str]) -> list[str]:
    """The problems without base files that a request has made after their write was rolled back.

    Their names get no tombstones. Our readers do not see them, and archivers remove them. `names` are the timeline's.
    """
    done = {name.partition("_")[0] for name in names if "_" in name}

    def is_late(problem: str) -> bool:
        path, _, rest = problem.partition(" ")
        file = parse_data_file(path.rpartition("/")[2])
        return isinstance(file, BaseFile) and rest == _NAMELESS and file.instant not in done

    return [problem for problem in problems if not is_late(problem)]


def lost_entries(storage: Storage) -> Iterator[str]:
    """Each entry was put on top of all that had completed before it."""
    found = map(parse_file_name, storage.list(TIMELINE_FOLDER).files)
    done = [one for one in found if one is not None and one.completion and one.action == COMMIT]
    files = {file.instant: file.name for file in map(parse_data_file, storage.list(LEDGER).files) if file is not None}
    before: list[str] = []
    for one in sorted(done, key=lambda one: one.completion or ""):
        if json.loads(storage.read(f"{LEDGER}/{files[one.requested]}"))["base"] != before:
            yield f"the entry {one.requested} was not put on top of all that there was"
        before.append(one.requested)


def enter(actor: Actor) -> None:
    """Adds one write to those that are there."""
    manager = actor.manager(OPTIMISTIC)
    manager.recover()
    transaction = manager.begin(COMMIT)
    with aborted_on_error(transaction):
        table = replace(table_of(actor), config=_CONFIG)
        task = actor.task(table, _OPTIONS, transaction)
        assert isinstance(task, MergeTask)
        actor.commit_files(transaction, table, _OPTIONS, [_written(actor, task)])


def _written(actor: Actor, task: MergeTask) -> FileReport:
    """By attempts that may fail, or go on beside the next one; all of them make the same file."""
    for attempt in range(_ATTEMPTS):
        if attempt < _ATTEMPTS - 1 and actor.random.random() < 0.2:
            actor.system.start_thread(partial(_zombie, actor, task, attempt), "zombie")
            continue
        try:
            return _attempt(actor, task, attempt)
        except (TransactionEnded, WriteConflict):
            raise
        except LakelatchError:
            actor.system.sleep(0.05)
    raise TransactionEnded("no attempt of the task got through", instant=task.instant)


def _zombie(actor: Actor, task: MergeTask, attempt: int) -> None:
    actor.system.sleep(3 * actor.random.random() ** 3)
    try:
        _attempt(actor, task, attempt)
    except LakelatchError:
        return


def _attempt(actor: Actor, task: MergeTask, attempt: int) -> FileReport:
    found = LiveSlices(task.view(), task.file_ids).slice_of(LEDGER, 0)
    before = json.loads(actor.storage.read(found.base_path))["writes"] if found.base_path else []
    content = {"group": found.file_id, "base": before, "optimistic": True, "writes": [*before, task.instant]}
    data = json.dumps({**content, "work": actor.work}).encode()
    name = planned_base_file(found.partition, found.file_id, task.instant).name
    with TaskFiles(actor.storage, task.instant, f"{LEDGER}-{attempt}", task.early, actor.system) as files:
        actor.create_once(files, LEDGER, name, data)
    return FileReport(LEDGER, found.file_id, name, 1, 0, len(data), 0, rows=1, merged_base=found.base_file or "")
