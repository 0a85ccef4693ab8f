"""What is done with a table, each as one call whose answer says all that damage could change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuzzed_table import Place, row
from memory_tables import GROUPED, PARTITIONED, PLAIN, WIDE, MemoryTable, manager_of

from lakelatch.console.timelines.entries import timeline_entries
from lakelatch.engine.calls import waiting_plans
from lakelatch.engine.read.plan import plan_read
from lakelatch.engine.services.counters import pending_plans
from lakelatch.engine.services.rewrites.compaction import Compaction
from lakelatch.engine.services.rewrites.log_compaction import LogCompaction
from lakelatch.engine.services.rewrites.rewriting import RewritingService
from lakelatch.engine.services.service import ServiceContext
from lakelatch.engine.table.opening import open_table
from lakelatch.storage import Storage
from lakelatch.timeline.actions import COMPACTION, LOG_COMPACTION
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.snapshots import Snapshots
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.table_config import load_table_config
from lakelatch.transactions.conflicts.report import recent_losses
from lakelatch.transactions.early.concurrent_writers import ConcurrentWriters
from lakelatch.transactions.early.notes import aborted_by, noted_work
from lakelatch.transactions.markers.direct import marked_instants
from lakelatch.transactions.markers.files import KeyIndex

Use = Callable[[Place, Storage], Any]
INCREMENTAL = {
    "hoodie.datasource.query.type": "incremental",
    "hoodie.datasource.read.begin.instanttime": "20000101000000000",
}
OPTIMIZED = {"hoodie.datasource.query.type": "read_optimized"}


def rows(place: Place, options: dict[str, object] | None = None) -> list[Any]:
    """All rows with their meta columns, in the order of their keys."""
    plan = plan_read(place.storage.uri, options)
    found = [row for one in plan.slices for batch in plan.read(one) for row in batch.to_pylist()]
    return sorted((tuple(row.items()) for row in found), key=repr)


def plain(place: Place) -> list[Any]:
    """All rows without meta columns."""
    return sorted(
        (tuple((name, value) for name, value in row if not name.startswith("_hoodie")) for row in rows(place)), key=repr
    )


def read(place: Place, storage: Storage) -> Any:
    return rows(place)


def read_since(place: Place, storage: Storage) -> Any:
    return rows(place, {**INCREMENTAL})


def read_bases(place: Place, storage: Storage) -> Any:
    return rows(place, {**OPTIMIZED})


def settings(place: Place, storage: Storage) -> Any:
    return load_table_config(storage), open_table(storage).schema


def log(place: Place, storage: Storage) -> Any:
    found = CommitLog(storage, place.system)
    tail = found.tail()
    events = found.events_after(0, tail)
    found.project(tail)
    return events, [found.content(event) for event in events]


def recover(place: Place, storage: Storage) -> Any:
    manager_of(storage, place.system).recover()
    return plain(place)


def write(place: Place, storage: Storage) -> Any:
    table = _table(place, storage)
    table.manager().recover()
    table.write(row(1, 9, "written"), row(20, 9, "written"))
    return plain(place)


def overwrite(place: Place, storage: Storage) -> Any:
    _table(place, storage).write(row(21, 9, "all there is", "q"), operation="insert_overwrite")
    return plain(place)


def compact(place: Place, storage: Storage) -> Any:
    """Carries out the plans that wait, and one that it makes."""
    table, manager = open_table(storage), manager_of(storage, place.system)
    manager.recover()
    context = ServiceContext(table, manager)
    services: tuple[RewritingService, ...] = (LogCompaction(), Compaction())
    for service in services:
        for instant in pending_plans(_listed(storage), service.action):
            service.execute(context, instant)
    planned = Compaction().schedule(context)
    if planned is not None:
        Compaction().execute(context, planned)
    return plain(place)


def schedule(place: Place, storage: Storage) -> Any:
    _table(place, storage).plan()
    return plain(place)


def repeat_batch(place: Place, storage: Storage) -> Any:
    result = _table(place, storage).write_batch(row(40, 1, "batch"))
    return result.repeated, result.instant, result.rows_written, plain(place)


def look(place: Place, storage: Storage) -> Any:
    """What the command line shows."""
    for loss in recent_losses(storage):  # one that cannot be read is left out
        assert (loss.winner, loss.rows_lost, loss.task_s_lost) == ("20260101000000001", 1, 0.003)
    return timeline_entries(storage), waiting_plans(place.storage.uri)


def look_early(place: Place, storage: Storage) -> Any:
    """What a task reads that looks for conflicts. Damage may hide another write: the commit finds it all the same."""
    manager = manager_of(storage, place.system)
    groups = [("p", "00000000-0000-0000-0000-000000000000-0"), ("q", "00000001-0000-0000-0000-000000000000-0")]
    context = manager.context
    found = ConcurrentWriters(storage, "20990101000000000", context.strategy.group_part, context.observer).on(groups)
    index = KeyIndex(storage)
    for instant in sorted(marked_instants(storage)):
        aborted_by(storage, instant)
        noted_work(storage, instant)
        index.refresh([instant])
    return {write.instant for write in found} <= marked_instants(storage)


def write_groups(place: Place, storage: Storage) -> Any:
    MemoryTable(storage, place.system, WIDE, GROUPED).write({"id": 3, "at": 9, "a": "late"})
    return plain(place)


def _table(place: Place, storage: Storage) -> MemoryTable:
    return MemoryTable(storage, place.system, PLAIN, PARTITIONED)


def _listed(storage: Storage) -> Snapshot:
    return Snapshots(storage).take()


USES: dict[str, Use] = {
    "read": read,
    "read_since": read_since,
    "read_bases": read_bases,
    "settings": settings,
    "log": log,
    "recover": recover,
    "write": write,
    "overwrite": overwrite,
    "compact": compact,
    "schedule": schedule,
    "repeat_batch": repeat_batch,
    "look": look,
    "look_early": look_early,
}
GROUPED_USES: dict[str, Use] = {
    name: USES[name] for name in ("read", "read_since", "read_bases", "log", "compact", "look")
} | {"write": write_groups}
assert {COMPACTION, LOG_COMPACTION} == {Compaction.action, LogCompaction.action}
