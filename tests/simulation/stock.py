"""A partition with Hudi's own file names, in which table services work beside writers, and beside each other.

Plans, commits, cancellations, cleans and archives are the product's. Only tasks are simulated: files hold lists of
rows, and a row is named after the write and the bucket that it came with.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
from actors import Actor, aborted_on_error
from seams import Place

from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.options.table_services.archiving import ArchivingOptions
from lakelatch.engine.options.table_services.cancellation import CancellationOptions
from lakelatch.engine.options.table_services.cleaning import CleaningOptions
from lakelatch.engine.options.table_services.clustering import ClusteringOptions
from lakelatch.engine.options.table_services.compaction import CompactionOptions
from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.services.cancelling import execute_cancel, execute_open, request_cancel
from lakelatch.engine.services.removals import archiving
from lakelatch.engine.services.removals.cleaning import Clean
from lakelatch.engine.services.rewrites.clustering import Clustering, ClusterTask
from lakelatch.engine.services.rewrites.compaction import Compaction, CompactTask
from lakelatch.engine.services.service import ServiceContext
from lakelatch.engine.table.table import OpenedTable
from lakelatch.errors import InvalidRequest, LakelatchError, TransactionEnded, WriteConflict
from lakelatch.failpoints import failpoint
from lakelatch.format.log.framing import MAGIC
from lakelatch.format.names import LogFile, parse_data_file
from lakelatch.format.slices.table_view import TableView
from lakelatch.format.tombstones import ensure_tombstone
from lakelatch.storage.contract import NotFound, path_below
from lakelatch.timeline.actions import CLUSTERING, INSERT_OVERWRITE, UPSERT, WRITE_ACTIONS
from lakelatch.timeline.log.whole_timeline import WholeTimeline
from lakelatch.timeline.metadata import CompactionOperation
from lakelatch.timeline.plans.service_plan import REWRITING_SERVICES, ServicePlan
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.table_config import TableConfig
from lakelatch.transactions.attempts.cancellation import PlanCompleted
from lakelatch.transactions.attempts.claims import PlanBusy
from lakelatch.transactions.base.cancel_requests import plan_of
from lakelatch.transactions.base.settings import NON_BLOCKING, OPTIMISTIC
from lakelatch.transactions.manager import TransactionManager

STOCK = "stock"
CONFIG = TableConfig("simulation", ("id",), ("part",), bucket_count=6)
_SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string())])
_OPTIONS = {
    (mode, operation): Call(
        {
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "part",
            "hoodie.datasource.write.operation": operation,
            "hoodie.write.concurrency.mode": mode,
        }
    ).write()
    for mode in (NON_BLOCKING, OPTIMISTIC)
    for operation in (UPSERT, INSERT_OVERWRITE)
}
_LATEST_ARRIVAL_S = 9  # of a request that its caller gave up
_LEFT = (TransactionEnded, PlanBusy, WriteConflict)
_GIVEN_UP = "of an attempt that was given up"


@lru_cache(maxsize=1024)
def rows_of(data: bytes) -> list[str]:
    """The rows of a data file; none of a tombstone, nor of a placeholder, which is the product's."""
    try:
        return list(json.loads(data)["rows"]) if data and not data.startswith(MAGIC) else []
    except ValueError:
        return [_GIVEN_UP]


# -- writers and readers ----------------------------------------------------------------------------------------------


def deposit(actor: Actor) -> None:
    """Writes a row to one bucket or to both, as the product's tasks do; now and then in place of all that is there."""
    mode = NON_BLOCKING if actor.random.random() < 0.6 else OPTIMISTIC
    options = _OPTIONS[mode, UPSERT if actor.random.random() < 0.8 else INSERT_OVERWRITE]
    manager = actor.manager(mode)
    manager.recover()
    transaction = manager.begin(options.action_on(CONFIG.table_type))
    with aborted_on_error(transaction):
        table = table_of(actor)
        groups = actor.task(table, options, transaction).live_groups()
        reports = []
        for bucket in actor.random.sample((0, 1), actor.random.choice((1, 1, 2))):
            file_id = groups.of(STOCK, bucket)
            names = [LogFile(file_id, transaction.instant, 1, f"{bucket}-1-{attempt}").name for attempt in range(4)]
            content = {"rows": [f"{transaction.instant}:{bucket}"]}
            stat = actor.add_file(transaction, file_id, content, STOCK, names.__getitem__)
            reports.append(FileReport(STOCK, file_id, stat.path.rpartition("/")[2], 1, 0, 1, 1))
        actor.commit_files(transaction, table, options, reports)


def browse(actor: Actor, place: Place) -> None:
    """Reads the stock as the product's readers do, and slowly: exactly what had completed when it began."""
    assert place.watch is not None
    view = TableView.load(actor.storage, CONFIG)
    try:
        slices = view.slices([STOCK])
    except NotFound:
        if not view.was_cleaned():
            raise
        return
    if view.was_cleaned():
        return
    seen = view.whole.completed(WRITE_ACTIONS)
    latest = max((one.completion or "" for one in seen), default="")
    rows: list[str] = []
    for path in (found.path_of(name) for found in slices for name in found.names):
        try:
            data = actor.storage.read(path)
            if not data:
                ensure_tombstone(WholeTimeline.load(actor.storage), path)
            rows += rows_of(data)
        except NotFound:
            if place.watch.is_undone(path):
                place.count("reader of what was undone")
                return
            if place.watch.cleaned_until() > latest:
                place.count("reader beyond retention")
                return
            place.watch.tell(f"{actor.name} began after {latest}, and {path} is gone")
            return
        actor.system.sleep(actor.random.random() ** 3)
    place.watch.compare(f"{actor.name} as of {latest}", rows, {one.requested for one in seen})


# -- plans, and who carries them out ----------------------------------------------------------------------------------


def plan(actor: Actor) -> None:
    """Schedules a clustering or a compaction, which most often can be cancelled."""
    manager, draw = actor.manager(NON_BLOCKING), actor.random
    manager.recover()
    policy = draw.choice(("24 hours", "3 instants"))
    cancellation = CancellationOptions(draw.random() < 0.75, policy, draw.random() < 0.6)
    if draw.random() < 0.65:
        options = ClusteringOptions(groups_max=draw.choice((1, 2, 2)))
        Clustering(options, cancellation).schedule(ServiceContext(table_of(actor), manager))
    else:
        Compaction(CompactionOptions(), cancellation).schedule(ServiceContext(table_of(actor), manager))


def serve(actor: Actor) -> None:
    """Carries out somebody's plan, also one that another executor is at, or that somebody calls off."""
    manager = actor.manager(NON_BLOCKING)
    manager.recover()
    plans = _pending(actor)
    if not plans and actor.random.random() < 0.8:
        plan(actor)
        plans = _pending(actor)
    if plans:
        _carry_out(actor, manager, actor.random.choice(plans))


def cancel(actor: Actor, place: Place) -> None:
    """Calls a plan off, whole or in part, and often ends it as well."""
    assert place.watch is not None
    manager, draw = actor.manager(NON_BLOCKING), actor.random
    manager.recover()
    if not _cancellable(actor) and draw.random() < 0.8:
        plan(actor)
    plans = _cancellable(actor)
    if not plans:
        return
    chosen = draw.choice(plans)
    part = None
    if chosen.policy.in_part and draw.random() < 0.6:
        part = frozenset(draw.sample(sorted(chosen.groups), 1))
    try:
        request_cancel(manager, chosen.instant, part)
        place.count("cancelled" if part is None else "cancelled in part")
        place.watch.cancelled(chosen, part)
        place.world.note(f"{actor.name} has cancelled {chosen.instant} {sorted(part or ())}")
        if draw.random() < 0.6:
            execute_cancel(manager, chosen.instant)
    except (PlanCompleted, PlanBusy):
        place.count("not cancelled")
    except InvalidRequest as error:  # it has gone since, or only a part was asked for
        place.world.note(f"{actor.name}: {error.message}")


def clean(actor: Actor) -> None:
    """A clean that keeps what the last commit or two need, and ends what was called off."""
    manager = actor.manager(NON_BLOCKING)
    manager.recover()
    options = CleaningOptions(commits=actor.random.choice((1, 2)), parallelism=1, cancel_delay_minutes=0)
    for done in Clean(options).run(ServiceContext(table_of(actor), manager)):
        actor.place.count("cleaned" if done.files else "cleaned nothing")


def archive(actor: Actor, place: Place) -> None:
    """An archiver that leaves two commits."""
    age_s = _LATEST_ARRIVAL_S if place.ever_late else 0
    options = ArchivingOptions(min_commits=2, max_commits=3, merged_files=2, minimum_age_s=age_s)
    done = archiving.archive(actor.manager(NON_BLOCKING), CONFIG, options)
    place.count("archived" if done.instants else "archived nothing")
    place.world.note(f"{actor.name} archived {done.instants}, held at {done.held_at} because {done.held_by}")


def finish(actor: Actor) -> None:
    """What the last one does: carries out all that waits."""
    manager = actor.manager(NON_BLOCKING)
    execute_open(manager)
    for waiting in _pending(actor):
        try:
            _carry_out(actor, manager, waiting)
        except LakelatchError as error:
            actor.place.world.note(f"{actor.name}: {error.message}")
    clean(actor)


def _carry_out(actor: Actor, manager: TransactionManager, chosen: ServicePlan) -> None:
    service = Clustering() if chosen.action == CLUSTERING else Compaction()
    try:
        result = service.execute(ServiceContext(table_of(actor), manager, _Executor(actor)), chosen.instant)
    except _LEFT as error:
        actor.place.count(f"{chosen.action} left")
        actor.place.world.note(f"{actor.name} leaves {chosen.instant}: {error.message}")
        return
    actor.place.count(f"{chosen.action} done")
    told = {"instant": result.instant, "outcome": "committed", "completion": result.completion}
    actor.history.note("return", actor.name, work=actor.work, role="write", **told)
    actor.place.world.note(f"{actor.name} has carried out {result.instant} at {result.completion}")


class _Executor:
    """Runs tasks here. Some look for a cancellation before they begin, which only saves them work."""

    tasks = True

    def __init__(self, actor: Actor) -> None:
        self._random, self._sleep = actor.random, actor.system.sleep

    def map(self, work: Any, things: Sequence[Any], kind: type[Any], what: str, small: bool = False) -> list[Any]:
        reports = []
        simulated = (_Cluster if isinstance(work, ClusterTask) else _Compact)(**vars(work))
        for operation in things:
            if self._random.random() < 0.3:
                work.ensure_wanted()
            self._sleep(0.8 * self._random.random() ** 2)
            reports.append(simulated.run(operation))
        return [report for report in reports if report is not None]


class _Compact(CompactTask):
    """As the product's, but for the format of the files."""

    def run(self, operation: CompactionOperation) -> FileReport | None:
        names = (*([operation.base_file] if operation.base_file else ()), *operation.delta_files)
        paths = [path_below(operation.partition, name) for name in names]
        rows = [row for path in paths for row in rows_of(self.table.storage.read(path))]
        name, data = self.name_of(operation), json.dumps({"rows": rows}).encode()
        self.put(operation, name, data)
        failpoint("compact.after_base_file")
        return FileReport(operation.partition, self.target_of(operation), name, len(rows), 0, len(data), 0)


class _Cluster(ClusterTask, _Compact):
    """Whether a file group is left alone is asked by the product's, and then it runs the one above."""


def _pending(actor: Actor) -> list[ServicePlan]:
    pending = [one for one in Snapshot.load(actor.storage).pending if one.action in REWRITING_SERVICES]
    plans: Iterable[ServicePlan | None] = (plan_of(actor.storage, one) for one in pending)
    return [one for one in plans if one is not None]


def _cancellable(actor: Actor) -> list[ServicePlan]:
    return [one for one in _pending(actor) if one.policy.cancellable]


def table_of(actor: Actor) -> OpenedTable:
    return OpenedTable(actor.storage, CONFIG, _SCHEMA)


def is_stock(path: str) -> bool:
    """Whether a path is that of a data file in the stock."""
    return path.startswith(f"{STOCK}/") and parse_data_file(path.rpartition("/")[2]) is not None
