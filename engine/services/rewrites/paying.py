"""Rewriting that nobody asked for: compactions of file groups whose logs cost their readers more than it is worth, and
small files that are joined.

What a read of a file group costs is told by bytes: those of its base file, and those of its logs, of which each is
opened by itself. How often a table is read it does not know, so the ratio of the two decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from heapq import nlargest
from itertools import chain
from zlib import crc32

from lakelatch.engine.options.table_services.inline import PayingOptions
from lakelatch.engine.run.executor import Here
from lakelatch.engine.services.counters import Counters, last_requested
from lakelatch.engine.services.rewrites.budget import SPENT, spent_today, unasked_bytes
from lakelatch.engine.services.rewrites.clustering import Clustering
from lakelatch.engine.services.rewrites.compaction import Compaction, base_bytes
from lakelatch.engine.services.rewrites.compaction_choice import IO_MB, LOG_BYTES, LOGS, with_io
from lakelatch.engine.services.rewrites.joining import Sized, files_of_a_size, first_within, joined, sized_files
from lakelatch.engine.services.rewrites.rewriting import busy_groups, due_operations, view_at
from lakelatch.engine.services.service import ServiceContext
from lakelatch.engine.table.table import OpenedTable
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.slices.table_view import TableView
from lakelatch.timegen.instant_time import to_ms
from lakelatch.timeline.actions import CLUSTERING, COMMIT, COMPACTION, DELTA_COMMIT, REPLACE_COMMIT
from lakelatch.timeline.instant import Instant
from lakelatch.timeline.metadata import CompactionOperation, FileGroup
from lakelatch.timeline.plans.clustering_plan import ClusteringGroup
from lakelatch.timeline.snapshot import Snapshot

_MB = 1024 * 1024
_OPEN_BYTES = 256 * 1024  # what opening a file costs a read, in bytes that it could have read meanwhile
_LEAST_RATIO = 0.1  # of logs to base, if no option says one
#: What a commit has written, of which a look for what it has made worth compacting is a small part.
LARGE_BYTES = 4 * _MB
_AT_ONCE = 2  # times the least ratio: one upsert of a tenth takes its own time, and two of them are compacted
_HERE_BYTES = 64 * _MB  # of one plan that the caller's own process carries out, while the caller waits
# From one compaction to the next: a table that is written many times a second would else be compacted all the time, of
# which no read that takes its seconds has anything.
_BETWEEN_MS = 60_000
_LOOKED_AT = 64  # file groups of each kind that may pay, of which one that does makes a plan worth while
_LATELY = 16  # delta commits, whose metadata say what was written to which file group


@dataclass(frozen=True)
class PayingCompaction(Compaction):
    """Compacts what pays, within a day's budget.

    A look is due after `paying.commits` delta commits, and not within a minute of the last plan, by the table's times.

    `at_once`: after each commit, for file groups of which so much was written that their logs' bytes alone come to
    twice what pays. Those without a base file wait: what loads a table by upserts would else write everything twice.
    """

    paying: PayingOptions = field(default_factory=PayingOptions)
    at_once: bool = False

    def due(self, counters: Counters) -> bool:
        if counters.waiting(COMPACTION):
            return False
        last = last_requested(counters.completed(COMMIT))
        if last and counters.writes and to_ms(counters.writes[-1].completion or last) < to_ms(last) + _BETWEEN_MS:
            return False
        return self.at_once or _is_turn(counters, counters.deltas_after(last), self.paying)

    def may_execute(self, context: ServiceContext, instant: str) -> bool:
        """Whether nobody asked for the plan, and it is not too much for where its tasks run."""
        return _is_for(context, COMPACTION, instant)

    def schedule(self, context: ServiceContext) -> str | None:
        """See `PlannedService`. The table's lock is taken only if something pays, and for its partitions."""
        self.check(context.table)
        found = self._promising(context.table)
        return context.manager.schedule(partial(self._plan, context, found), self.action) if found else None

    def _plan(self, context: ServiceContext, partitions: list[str], snapshot: Snapshot) -> bytes | None:
        spent = spent_today(context, COMPACTION, snapshot)
        left = _left(self.paying, context, spent)
        view = view_at(context.table, snapshot)
        due = due_operations(view, snapshot, self.options.least_logs, partitions)
        found = list(self._within(due, base_bytes(context.table.storage, due), left))
        return self.plan_of(found, snapshot, {SPENT: str(spent + sum(map(_io_bytes, found)))})

    def _within(
        self, due: Sequence[CompactionOperation], bases: Sequence[int], left: int
    ) -> Iterator[CompactionOperation]:
        """Those that pay, which save most for what they cost first, until the rest of a budget is spent."""
        paying = [
            (_log_cost(int(one.metrics[LOG_BYTES]), int(one.metrics[LOGS])), with_io(one, base))
            for one, base in zip(due, bases, strict=True)
            if self._pays(int(one.metrics[LOG_BYTES]), int(one.metrics[LOGS]), base)
        ]
        for _, one in sorted(paying, key=lambda pair: -pair[0] / max(1, _io_bytes(pair[1]))):
            if _io_bytes(one) <= left:
                left -= _io_bytes(one)
                yield one

    def _pays(self, log_bytes: int, logs: int, base: int) -> bool:
        ratio = self.options.least_log_ratio or _LEAST_RATIO
        if self.at_once:
            return bool(base) and log_bytes >= _AT_ONCE * ratio * base
        return _log_cost(log_bytes, logs) >= ratio * (base + _OPEN_BYTES)

    def _promising(self, table: OpenedTable) -> list[str]:
        """The partitions with a file group that pays, among those that are likely to."""
        storage = table.storage
        # One listing does: what pays is decided again at the plan's place in the log.
        most = _likely(TableView.of_look(storage, table.config, Snapshot.look(storage)))
        paths = [(found.base_path, tuple(map(found.path_of, found.fresh_logs))) for found in most]
        named = [path for base, logs in paths for path in ((base, *logs) if base else logs)]
        status = storage.together(*(partial(storage.stat, path) for path in named))
        sizes = {path: one.size_bytes for path, one in zip(named, status, strict=True)}

        def pays(found: FileSlice) -> bool:
            logs = [sizes[path] for path in map(found.path_of, found.fresh_logs)]
            return self._pays(sum(logs), len(logs), sizes[found.base_path] if found.base_path else 0)

        return sorted({found.partition for found in most if pays(found)})


@dataclass(frozen=True)
class PayingJoin(Clustering):
    """Joins small files of a table without a record key, within a day's budget.

    A look is due after every `paying.commits` commits.
    """

    paying: PayingOptions = field(default_factory=PayingOptions)

    def due(self, counters: Counters) -> bool:
        if counters.waiting(CLUSTERING):
            return False
        return _is_turn(counters, counters.completed_after(_last_clustering(counters), COMMIT), self.paying)

    def may_execute(self, context: ServiceContext, instant: str) -> bool:
        """Whether nobody asked for the plan, and it is not too much for where its tasks run."""
        return _is_for(context, CLUSTERING, instant)

    def schedule(self, context: ServiceContext) -> str | None:
        """See `PlannedService`. The table's lock is taken only if there is something to join."""
        view = TableView.load(context.table.storage, context.table.config)
        found = sorted({files[0][0].partition for files in self._sets(view, frozenset(), _with_new_files(view))})
        return context.manager.schedule(partial(self._plan, context, found), self.action) if found else None

    def _plan(self, context: ServiceContext, partitions: list[str], snapshot: Snapshot) -> bytes | None:
        spent = spent_today(context, CLUSTERING, snapshot)
        left = left_before = _left(self.paying, context, spent)
        view = TableView.load(context.table.storage, context.table.config)
        groups: list[ClusteringGroup] = []
        for found in self._sets(view, busy_groups(context.table.storage, snapshot), partitions):
            files = first_within(found, left // 2)
            left -= 2 * sum(size for _, size in files)
            groups += joined(files) if files else ()
        return self.plan_of(view, groups, snapshot, {SPENT: str(spent + left_before - left)})

    def _sets(
        self, view: TableView, busy: Collection[FileGroup], partitions: Iterable[str]
    ) -> Iterator[Sequence[Sized]]:
        return chain.from_iterable(map(files_of_a_size, sized_files(view, busy, partitions)))


def _likely(view: TableView) -> list[FileSlice]:
    """File groups with many logs, those with most bytes in their latest logs, and others, drawn: each has its turn."""
    with_logs = [found for found in view.latest() if found.fresh_logs]
    if len(with_logs) <= _LOOKED_AT:
        return with_logs
    lately = view.timeline.by_action.get(DELTA_COMMIT, ())[-_LATELY:]
    written: Counter[FileGroup] = Counter()
    for metadata in view.whole.metadata_of(lately):
        written.update({(one.partition, one.file_id): one.file_size_bytes for one in metadata.stats})
    draw = lately[-1].requested if lately else ""
    orders: tuple[Callable[[FileSlice], int], ...] = (
        lambda found: len(found.fresh_logs),
        lambda found: written[(found.partition, found.file_id)],
        lambda found: crc32(f"{draw}/{found.partition}/{found.file_id}".encode()),
    )
    return list(dict.fromkeys(found for order in orders for found in nlargest(_LOOKED_AT, with_logs, key=order)))


def _with_new_files(view: TableView) -> list[str]:
    """The partitions of the newest files: what is small there was written last, or joined last."""
    newest = nlargest(_LOOKED_AT, view.latest(), key=lambda found: found.base_instant)
    return sorted({found.partition for found in newest})


def _is_turn(counters: Counters, commits: Iterable[Instant], paying: PayingOptions) -> bool:
    """Whether it is the first commit that may look, or, where that one did not, drawn: no rhythm of writers, of whom
    some look for nothing, avoids it.
    """
    count = sum(1 for _ in commits)
    reached = counters.has_reached(count, paying.commits)
    return reached or (count > paying.commits and counters.is_drawn(paying.commits))


def _last_clustering(counters: Counters) -> str:
    replaces = counters.completed(REPLACE_COMMIT)
    return last_requested(one for one in replaces if counters.has_plan(one, CLUSTERING))


def _left(paying: PayingOptions, context: ServiceContext, spent: int) -> int:
    """The bytes that one plan may come to."""
    left = paying.daily_mb * _MB - spent
    return min(left, _HERE_BYTES) if isinstance(context.executor, Here) else left


def _log_cost(log_bytes: int, logs: int) -> int:
    return log_bytes + logs * _OPEN_BYTES


def _io_bytes(operation: CompactionOperation) -> int:
    return round(operation.metrics[IO_MB] * _MB)


def _is_for(context: ServiceContext, action: str, instant: str) -> bool:
    """Whether a writer may carry out a plan: those that were asked for are for whoever did, and large ones for those
    with a session.
    """
    size = _unasked_bytes(context.table.storage, action, instant)
    return size is not None and (size <= _HERE_BYTES or not isinstance(context.executor, Here))


_unasked_bytes = lru_cache(maxsize=1024)(unasked_bytes)
