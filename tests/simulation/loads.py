"""Bulk loads into the stock: whoever finds a bucket without a slice makes its first base file, others log files."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

from actors import Actor, aborted_on_error
from stock import CONFIG, STOCK, table_of

from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.write.tasks.bulk_task import BulkTask
from lakelatch.engine.write.tasks.task import WriteTask
from lakelatch.errors import LakelatchError, TransactionEnded, WriteConflict
from lakelatch.format.names import LogFile, planned_base_file
from lakelatch.format.slices.live_groups import LiveSlices
from lakelatch.timeline.actions import BULK_INSERT
from lakelatch.transactions.base.settings import NON_BLOCKING, OPTIMISTIC
from lakelatch.transactions.early.task_files import TaskFiles
from lakelatch.transactions.transaction import Transaction

_OPTIONS = {
    mode: Call(
        {
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "part",
            "hoodie.datasource.write.operation": BULK_INSERT,
            "hoodie.write.concurrency.mode": mode,
        }
    ).write()
    for mode in (NON_BLOCKING, OPTIMISTIC)
}
_ATTEMPTS = 4


def load(actor: Actor) -> None:
    """Loads a row into some buckets, as log files if base files are in the way under non-blocking control."""
    mode = NON_BLOCKING if actor.random.random() < 0.7 else OPTIMISTIC
    buckets = actor.random.sample(range(CONFIG.bucket_count or 1), actor.random.choice((1, 2, 3)))
    if not _load(actor, mode, buckets, in_bulk=actor.random.random() < 0.8):
        _load(actor, mode, buckets, in_bulk=False)


def _load(actor: Actor, mode: str, buckets: list[int], in_bulk: bool) -> bool:
    """Whether it need not be done again with log files."""
    options, bases = _OPTIONS[mode], False
    manager = actor.manager(mode)
    manager.recover()
    transaction = manager.begin()
    try:
        with aborted_on_error(transaction):
            table = table_of(actor)
            task = actor.task(table, options, transaction, in_bulk)
            assert isinstance(task, BulkTask) == in_bulk
            reports = [_written(actor, transaction, task, bucket) for bucket in buckets]
            if any(report.version == 0 for report in reports):
                actor.place.count("loads with base files")
                bases = mode == NON_BLOCKING
            actor.commit_files(transaction, table, options, reports)
    except WriteConflict:
        if not bases:
            raise
        actor.place.count("loads that became log files")
        return False
    return True


def _written(actor: Actor, transaction: Transaction, task: WriteTask, bucket: int) -> FileReport:
    content = {"rows": [f"{task.instant}:{bucket}"]}
    if isinstance(task, BulkTask):
        found = LiveSlices(task.view(), task.file_ids).slice_of(STOCK, bucket)
        if not found.base_instant:
            return _first_base(actor, task, found.file_id, json.dumps({**content, "work": actor.work}).encode())
    file_id = task.live_groups().of(STOCK, bucket)
    names = [LogFile(file_id, task.instant, 1, f"{bucket}-1-{attempt}").name for attempt in range(_ATTEMPTS)]
    stat = actor.add_file(transaction, file_id, content, STOCK, names.__getitem__)
    return FileReport(STOCK, file_id, stat.path.rpartition("/")[2], 1, 0, 1, 1)


def _first_base(actor: Actor, task: BulkTask, file_id: str, data: bytes) -> FileReport:
    """By attempts that may fail, or go on beside the next one; all of them make the same file."""
    name = planned_base_file(STOCK, file_id, task.instant).name

    def attempt(number: int) -> None:
        with TaskFiles(actor.storage, task.instant, f"{file_id}-{number}", task.early, actor.system) as files:
            actor.create_once(files, STOCK, name, data)

    for number in range(_ATTEMPTS):
        if number < _ATTEMPTS - 1 and actor.random.random() < 0.2:
            actor.system.start_thread(partial(_late, actor, partial(attempt, number)), "zombie")
            continue
        try:
            attempt(number)
            return FileReport(STOCK, file_id, name, 1, 0, len(data), 0, rows=1)
        except (TransactionEnded, WriteConflict):
            raise
        except LakelatchError:
            actor.system.sleep(0.05)
    raise TransactionEnded("no attempt of the task got through", instant=task.instant)


def _late(actor: Actor, attempt: Callable[[], None]) -> None:
    actor.system.sleep(3 * actor.random.random() ** 3)
    try:
        attempt()
    except LakelatchError:
        return
