"""A table's columns at a moment, as its writes record them; no commit loses columns that commits before it added.

The schema is that of the write that completed last. Compactions and clusterings carry one as well, which does not
count: another engine's may be older than a write that completed during the service. Java ignores them, too.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain

import pyarrow as pa

from lakelatch.engine.table.table import OpenedTable
from lakelatch.errors import CorruptTable, InvalidRequest, InvariantBroken, LakelatchError
from lakelatch.format.avro import arrow_to_avro, avro_to_arrow, without_meta_columns
from lakelatch.format.evolution import Comparison, may_become
from lakelatch.storage.contract import Storage
from lakelatch.timeline.actions import CLUSTER, COMMIT, COMPACT, DELTA_COMMIT, LOG_COMPACT, WRITE_ACTIONS
from lakelatch.timeline.history.named_files import remember
from lakelatch.timeline.instant import Instant, completed, is_seen, parse_file_name, requested_time
from lakelatch.timeline.log.events import COMPLETE, Event
from lakelatch.timeline.log.half_shown import behind_missing, instants_in
from lakelatch.timeline.log.rollbacks import Rollbacks, may_be_undone
from lakelatch.timeline.log.whole_timeline import WholeTimeline, read_commit
from lakelatch.timeline.metadata import BEFORE_KEY, CHANGES_KEY, SCHEMA_KEY, WRITER_KEY, CommitMetadata
from lakelatch.timeline.properties_file import PROPERTIES_PATH
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.table_config import MERGE_ON_READ, TableConfig
from lakelatch.transactions.attempts.checks import At, Check
from lakelatch.transactions.base.outcome import Changed, Committed
from lakelatch.transactions.conflicts.contract import Conflict, OtherWrite
from lakelatch.transactions.manager import TransactionManager

_ALTER_SCHEMA = "ALTER_SCHEMA"
_log = logging.getLogger("lakelatch.engine")
_SERVICES = (COMPACT, CLUSTER, LOG_COMPACT, "INDEX")


@dataclass(frozen=True)
class TableSchema:
    """Columns without meta columns, and the file that records them.

    `changes` are the instants of all changes of the table in the transaction of that commit, if it is not the last one,
    and `before` those of other writers that its slot commits before it.
    """

    columns: pa.Schema
    path: str
    changes: tuple[str, ...] = ()
    before: tuple[str, ...] = ()


def schema_at(storage: Storage, config: TableConfig, timeline: Snapshot, moment: str | None = None) -> TableSchema:
    """The columns at a completion time, or now. Errors: `CorruptTable`, `InvalidRequest` for unsupported types."""
    completed = timeline.by_completion
    if moment is not None:
        completed = tuple(one for one in completed if is_seen(one.completion or "", moment))
    found = _said_last(storage, config, completed)
    if found is not None and may_be_undone(parse_file_name(found.path.rpartition("/")[2]), timeline):
        late = Rollbacks(storage).late(timeline)
        found = _said_last(storage, config, [one for one in completed if one.file_name not in late])
    if found is None and timeline.has_history:
        archived = WholeTimeline.load(storage, timeline).archived(WRITE_ACTIONS, until=moment)
        found = _said_last(storage, config, [one.instant for one in archived])
    if found is None and config.create_schema:
        return parsed_schema(config.create_schema, PROPERTIES_PATH)
    if found is None:
        raise CorruptTable(f"the table at {storage.uri} names its columns nowhere: no commit and no create schema")
    return found


def half_shown(storage: Storage, config: TableConfig, timeline: Snapshot) -> frozenset[str]:
    """The completed files of the log's last slot that do not count yet, because others of it are still to be made.

    The log has nothing behind them meanwhile. Of a transaction that has changed this table several times a reader sees
    all of its changes or none; of commits that are shown at once, those up to the first that is missing, so nothing
    comes later behind what it has seen. It reads no file that says the columns as well.
    """
    found = _said_last(storage, config, timeline.by_completion)
    if found is None or not (found.changes or found.before):
        return frozenset()
    half = behind_missing(timeline, found.before, requested_time(found.path.rpartition("/")[2]))
    if found.changes and any(one.requested == found.changes[-1] for one in timeline.pending):
        half = found.changes
    files = (one for instant in half for one in timeline.of(instant))
    return frozenset(one.file_name for one in files if one.completion is not None)


def keeps_schema(table: OpenedTable, adds_columns: bool = True) -> Check:
    """The check that makes the commit's schema that of its slot in the log, with the columns that the write adds.

    Costs nothing unless another write has completed since the table was opened. If both add a column, with types that
    do not fit together, that is a conflict, and the first to complete wins. It comes before checks for cancellations,
    which have to be as late as possible.
    """

    def check(snapshot: Snapshot, at: At) -> Changed | Conflict | None:
        learn_slot(table.storage, at.place.tail.events)
        found = _said_last(table.storage, table.config, snapshot.by_completion, table.schema_path)
        if found is None or found.path == table.schema_path:
            return None
        return _merged(table if adds_columns else replace(table, schema=found.columns), found, at)

    return check


def says_columns_of(table: OpenedTable, snapshot: Snapshot) -> bool:
    """Whether the write that completed last, as a snapshot shows it, says this table's columns, comments included."""
    found = _said_last(table.storage, table.config, snapshot.by_completion, table.schema_path)
    return found is None or found.path == table.schema_path or found.columns.equals(table.schema, check_metadata=True)


def say_schema_again(manager: TransactionManager, table: OpenedTable, instant: str) -> None:
    """After a commit that changed the columns: commits them again, without rows, if a later requested write lacks them.

    Other engines take the columns from the write that was requested last, which may have completed before this one.
    Failures are only logged: without this commit, other engines find the columns with the next one.
    """
    if not table.changes_schema:
        return
    storage = table.storage
    try:
        timeline = Snapshot.look(storage)
        last = max((one for one in timeline.completed if one.action in WRITE_ACTIONS), key=lambda one: one.requested)
        latest = schema_at(storage, table.config, timeline)
        said = read_commit(storage, last).schema
        if last.requested == instant or (said and parsed_schema(said, last.path).columns == latest.columns):
            return
        transaction = manager.begin(COMMIT if table.config.copies_on_write else DELTA_COMMIT, for_tasks=False)
        try:
            opened = replace(table, schema=latest.columns, schema_path=latest.path)
            extra = {SCHEMA_KEY: opened.avro_schema, WRITER_KEY: transaction.writer}
            metadata = CommitMetadata((), _ALTER_SCHEMA, extra)
            transaction.commit(metadata, [keeps_schema(opened)])
        except LakelatchError:
            transaction.abort_quietly()
            raise
    except LakelatchError as error:
        _log.warning("other engines see the new columns of %s with its next commit: %s", storage.uri, error)


def _merged(table: OpenedTable, latest: TableSchema, at: At) -> Changed | Conflict:
    metadata, compared = at.staged.metadata, Comparison.of(latest.columns, table.schema)
    # Columns that others have widened stay wide.
    if not compared.alike and all(may_become(one.given, one.stored) for one in compared.unfit):
        schema = arrow_to_avro(compared.schema, table.config.name)
        return Changed(replace(at.staged, metadata=replace(metadata, extra={**metadata.extra, SCHEMA_KEY: schema})))
    instant = parse_file_name(latest.path.rpartition("/")[2])
    if instant is None:
        raise InvariantBroken(f"{latest.path} is no instant's")
    groups = metadata.file_groups()
    by_time = (write for write in at.since if write.instant == instant.requested)
    other = OtherWrite(instant.requested, instant.action, "", groups, time=instant.completion or "")
    return Conflict(next(by_time, other), groups)


def _said_last(
    storage: Storage, config: TableConfig, completed: Sequence[Instant], known: str = ""
) -> TableSchema | None:
    """The last schema in these instants, given in order of completion; not read again if it is in the file `known`.

    Only as many instants are visited as it takes.
    """
    # In a merge-on-read table commits are compactions, except for those from before it was converted.
    last = (COMMIT,) if config.table_type == MERGE_ON_READ else ()
    first = [action for action in WRITE_ACTIONS if action not in last]
    for instant in chain.from_iterable(_latest(completed, actions) for actions in (first, last)):
        if instant.path == known:
            return TableSchema(pa.schema([]), known)
        found = _said_by(storage, instant)
        if found is not None:
            return found
    return None


def _latest(completed: Sequence[Instant], actions: Collection[str]) -> Iterator[Instant]:
    return (one for one in reversed(completed) if one.action in actions)


def _said_by(storage: Storage, instant: Instant) -> TableSchema | None:
    """The schema in a completed write. It never changes, so each is read once in a process."""
    place = _place(storage, instant)
    if not place:
        place.append(_said_in(read_commit(storage, instant), instant))
    return place[0]


def learn_schema(storage: Storage, action: str, committed: Committed) -> None:
    """Caches the schema and the files of this process's own commit, so that it need not read them; raises nothing.

    `action` is that of the pending instant.
    """
    instant = completed(committed.instant, action, committed.completion)
    remember(storage, instant, committed.metadata)
    with suppress(LakelatchError):  # reading it raises the error
        _place(storage, instant)[:] = [_said_in(committed.metadata, instant)]


def learn_slot(storage: Storage, events: Sequence[Event]) -> None:
    """Caches the schema and the files of the last commit of a slot that this process has read; raises nothing.

    Where many commit at once, the last one is somebody else's, and its file would have to be read by each.
    """
    for event in events[-1:]:
        if event.kind == COMPLETE and event.action in WRITE_ACTIONS and event.content:
            instant = parse_file_name(event.file)
            with suppress(LakelatchError):
                if instant is not None and not _place(storage, instant):
                    metadata = CommitMetadata.from_avro(event.content, event.path)
                    remember(storage, instant, metadata)
                    _place(storage, instant)[:] = [_said_in(metadata, instant)]


def _said_in(metadata: CommitMetadata, instant: Instant) -> TableSchema | None:
    if metadata.operation_type in _SERVICES or not metadata.schema:
        return None
    changes, before = (instants_in(metadata.extra.get(key, "")) for key in (CHANGES_KEY, BEFORE_KEY))
    return replace(parsed_schema(metadata.schema, instant.path), changes=changes, before=before)


@lru_cache(maxsize=1024)
def _place(storage: Storage, instant: Instant) -> list[TableSchema | None]:
    """The cache entry for an instant: an empty list at first."""
    return []


def parsed_schema(avro_schema: str, path: str) -> TableSchema:
    """The columns in a file's schema. Errors: `CorruptTable`, `InvalidRequest`, naming the file."""
    try:
        return TableSchema(_columns(avro_schema), path)
    except (CorruptTable, InvalidRequest) as error:
        raise type(error)(f"in {path}: {error.message}", path=path) from error


@lru_cache(maxsize=128)  # most commits have the same schema
def _columns(avro_schema: str) -> pa.Schema:
    return without_meta_columns(avro_to_arrow(avro_schema))
