"""One table as the page shows it: what polls find, by readings alone.

A poll lists two small folders, the commit log's and the heartbeats'. The timeline's own folder is listed if those have
changed, once more after that, since files follow their slots, and every so often for writers that keep no log. Names
say at once that an instant is there and how long it took; what its file says is read afterwards, the newest first.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.services.counters import Counters
from lakelatch.engine.services.keeping.steps import Steps
from lakelatch.engine.services.removals import archiving
from lakelatch.errors import CorruptTable, InvalidRequest, LakelatchError
from lakelatch.heartbeat.contract import HEARTBEAT_FOLDER
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.storage.uris import without_secrets
from lakelatch.system import System
from lakelatch.timegen.instant_time import to_instant, to_ms
from lakelatch.timeline.actions import CLEAN, RESTORE, ROLLBACK, SAVEPOINT
from lakelatch.timeline.instant import Instant, is_time, requested_time
from lakelatch.timeline.log.log_reader import LogMoved, LogReader, Tail
from lakelatch.timeline.log.snapshots import Snapshots
from lakelatch.timeline.plans.service_plan import REWRITING_SERVICES
from lakelatch.timeline.properties_file import PROPERTIES_PATH
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.table_config import load_table_config
from lakelatch.transactions.base.cancel_requests import cancel_requests, plan_of
from lakelatch.transactions.conflicts.report import Loss, loss_names, read_loss
from lakelatch.ui.beats import BeatWatch
from lakelatch.ui.changes import Changes
from lakelatch.ui.entries import LOST, ROLLED_BACK, Entry, furthest, key_of, named, read_entry, service_of
from lakelatch.ui.lock_watch import LockWatch

OK, FAILED, GONE = "ok", "failed", "gone"
_LIST_EVERY = 10  # polls, where nothing seems to have changed
_READ_AT_ONCE = 64
_NAMES_KEPT = 5000
_log = logging.getLogger("lakelatch.ui")


class TableWatch:
    """One table. `poll` is for one thread; `changes` and `summary` for all."""

    def __init__(self, storage: Storage, options: Mapping[str, str], system: System) -> None:
        self.storage = storage
        self.uri = without_secrets(storage.uri)
        self.changes = Changes(system)
        self.locks = LockWatch(storage, options, system)
        self._system = system
        self._services = Call(options).services()
        self._steps = Steps(self._services)
        self._clear()
        self._report(OK, "")

    def _clear(self) -> None:
        self._snapshots = Snapshots(self.storage)
        self._snapshot = Snapshot()
        self._log = LogReader(self.storage, self._system)
        self._beats = BeatWatch(self.storage, self._system)
        self._small: tuple[frozenset[str], frozenset[str]] | None = None
        self._again = False
        self._polls = 0
        self._tail = Tail(0)
        self._names: dict[str, str] = {}  # of writers, by the requested time of what they did
        self._asked: dict[str, str] = {}  # cancellations by requested time
        self._losses: dict[str, Loss] = {}
        self._undone: dict[str, str] = {}  # by requested time: the rollback or restore that took it away
        self._undoes: dict[str, tuple[str, ...]] = {}  # by rollback
        self._unread: dict[str, Instant] = {}  # by key: of these only the names are known
        self._shown: dict[str, tuple[Instant, str, str]] = {}  # with what else its names do not say

    # -- polling ------------------------------------------------------------------------------------------------------

    def poll(self) -> bool:
        """Looks what has changed; whether it could. Raises nothing: a failure is a part of what is shown."""
        try:
            self._poll()
        except LakelatchError as error:
            self._report(FAILED, error.message)
        except Exception as error:  # the page outlives whatever a table or a library has in store
            _log.exception("%s: a poll failed", self.uri)
            self._report(FAILED, f"{type(error).__name__}: {error}")
        return bool(self.summary["state"] == OK)

    def _poll(self) -> None:
        lists = (self._log_names, partial(self.storage.names, HEARTBEAT_FOLDER))
        log, beats = map(frozenset, self.storage.together(*lists))
        changed, self._small = (log, beats) != self._small, (log, beats)
        due, self._polls = self._polls % _LIST_EVERY == 0, self._polls + 1
        if changed or self._again or due or self.summary["state"] != OK:
            if not self.storage.exists(PROPERTIES_PATH):
                self._is_gone()
                return
            self._again = True  # until a listing has followed without a failure or a change
            self._look_at_log()
            self._look_at_losses()
            self._asked = {one.instant: "whole" if one.whole else "part" for one in cancel_requests(self.storage)}
            self._take(self._snapshots.take())
            self._again = changed
        self.locks.look(self._tail.lock_domain)
        self.changes.set_part("locks", self.locks.part)
        self._look_at_beats(beats)
        self._report(OK, "")

    def _log_names(self) -> Iterable[str]:
        return self.storage.names(".hoodie/.lakelatch/log")

    def _is_gone(self) -> None:
        if self.summary["state"] != GONE:
            for key in [*self._shown, *self._undone, *self._losses]:
                self.changes.set_entry(key, None)
            for part in ("writers", "plans"):
                self.changes.set_part(part, [])
            self.locks.close()
            self._clear()
        self._report(GONE, "the table is not there any more; should one be made here, it is shown")

    def _look_at_log(self) -> None:
        """The writers whom slots name. Slots that are removed meanwhile are left out."""
        tail = self._log.tail()
        try:
            events = self._log.events_after(min(self._tail.number, tail.number), tail)
        except LogMoved:
            events = []
        if tail.lock_domain != self._tail.lock_domain:
            self.locks.close()
        for event in events:
            self._name(event.instant, event.writer)
        self._tail = tail
        self._log.forget_old()

    def _name(self, instant: str, writer: str) -> None:
        if writer:
            self._names[instant] = writer
            while len(self._names) > _NAMES_KEPT:
                del self._names[next(iter(self._names))]

    def _look_at_losses(self) -> None:
        names = [name for name in loss_names(self.storage) if is_time(name)]
        fresh = [name for name in names if name not in self._losses]
        found = self.storage.together(*(partial(read_loss, self.storage, name) for name in fresh))
        kept = {name: self._losses[name] for name in names if name in self._losses}
        gone = self._losses.keys() - kept.keys()
        self._losses = {**kept, **{loss.instant: loss for loss in found if loss is not None}}
        for name in (*fresh, *gone):
            self._show_undone(name)
        self.changes.set_part("losses", [_loss_json(one) for one in self._losses.values()])

    def _look_at_beats(self, listed: frozenset[str]) -> None:
        writers = self._beats.look(listed, self.locks.leases)
        for one in writers:
            self._name(one["instant"], one["writer"])
        for instant in self._snapshot.pending:
            self._show_names(instant.requested)
        self.changes.set_part("writers", writers)

    # -- instants -----------------------------------------------------------------------------------------------------

    def _take(self, snapshot: Snapshot) -> None:
        before, self._snapshot = self._snapshot, snapshot
        touched: Iterable[str] = snapshot.by_requested
        if before.names:
            touched = {requested_time(name) for name in snapshot.names ^ before.names}
        for time in sorted(filter(is_time, touched)):
            self._show_names(time)
        plans = {one.requested: one for one in snapshot.pending if one.action in (*REWRITING_SERVICES, CLEAN)}
        waiting = [
            {
                "instant": time,
                "action": one.action,
                "state": one.state,
                "cancelled": self._asked.get(time, ""),
                "cancellable": self._is_cancellable(one),
            }
            for time, one in plans.items()
        ]
        self.changes.set_part("plans", {"waiting": waiting, "due": self._due()})

    def _is_cancellable(self, pending: Instant) -> bool:
        try:
            plan = plan_of(self.storage, pending) if pending.action in REWRITING_SERVICES else None
        except CorruptTable:
            return False
        return plan is not None and plan.policy.cancellable

    def _due(self) -> list[str]:
        counters = Counters.of(self._snapshot, self._system.realtime_ms())
        options = self._services.archiving
        archives = options.automatic and archiving.is_due(counters, options)
        found = [one.action for one in self._steps.planned_anew() if one.due(counters)]
        return [*found, *(["archive"] if archives else [])]

    def _show_names(self, time: str) -> None:
        """Shows the instants of a requested time as their names have them, unless more was read of the same files."""
        files = self._snapshot.of(time)
        kept = [one for one in files if one.action == SAVEPOINT]
        self._show_named(time, time, [one for one in files if one.action != SAVEPOINT] if kept else files)
        self._show_named(key_of(time, SAVEPOINT), time, kept)

    def _show_named(self, key: str, time: str, files: Sequence[Instant]) -> None:
        """Shows one of them, or takes it away if it has no files any more."""
        if not files:
            self._remove(key)
            return
        instant, more = furthest(files), ("", "")
        if instant.completion is None:
            more = self._names.get(time, ""), self._asked.get(time, "")
        shown = (instant, *more)
        if shown != self._shown.get(key):
            self._shown[key] = shown
            self._unread[key] = instant
            self._set(key, named(instant, service_of(files), *more))

    def _set(self, key: str, entry: Entry) -> None:
        self.changes.set_entry(key, {"key": key, **entry.brief()})

    def _remove(self, key: str) -> None:
        if self._shown.pop(key, None) is not None:
            self._unread.pop(key, None)
            for target in self._undoes.pop(key, ()):
                self._undone.pop(target, None)
                self._show_undone(target)
            self.changes.set_entry(key, None)
            self._show_undone(key)

    def read_some(self) -> bool:
        """Reads what the files of some instants say, the newest first; whether there are more to read.

        Raises nothing: what cannot be read stays as its names have it.
        """
        chosen = sorted(self._unread, reverse=True)[:_READ_AT_ONCE]
        instants = [self._unread.pop(key) for key in chosen]
        try:
            self.storage.together(*(partial(self._read, *pair) for pair in zip(chosen, instants, strict=True)))
        except LakelatchError as error:
            self._unread.update(zip(chosen, instants, strict=True))
            self._report(FAILED, error.message)
            return False
        return bool(self._unread)

    def _read(self, key: str, instant: Instant) -> None:
        time = instant.requested
        service = service_of(self._snapshot.of(time))
        try:
            entry = read_entry(self.storage, instant, service, self._names.get(time, ""), self._asked.get(time, ""))
        except NotFound:  # it has ended since, which the next poll shows
            return
        except (CorruptTable, InvalidRequest) as error:
            self._set(key, named(instant, service))
            _log.warning("%s: %s", self.uri, error)
            return
        if not entry.writer:
            entry = entry._replace(writer=self._names.get(time, ""))
        if self._shown.get(key, (None,))[0] != instant:
            return
        self._set(key, entry)
        if instant.action in (ROLLBACK, RESTORE):
            self._undoes[key] = entry.undone
            for target in entry.undone:
                self._undone[target] = time
                self._show_undone(target)

    def _show_undone(self, time: str) -> None:
        """Shows a write that has left the timeline: who beat it, or took it away."""
        if time in self._shown:
            return
        loss, by = self._losses.get(time), self._undone.get(time, "")
        if loss is None and not by:
            self.changes.set_entry(time, None)
            return
        if loss is not None:
            ended = to_instant(to_ms(time) + int(loss.time_lost_s * 1000))
            entry = Entry(
                time,
                None,
                "write",
                LOST,
                writer=loss.writer,
                rows=loss.rows_lost,
                size_bytes=loss.bytes_lost,
                file_groups=loss.file_group_count,
                ended=ended,
                winner=loss.winner,
                winner_writer=loss.winner_writer,
                undone_by=by,
                seconds_lost=loss.time_lost_s,
            )
        else:
            writer = self._names.get(time, "")
            entry = Entry(time, None, "write", ROLLED_BACK, writer=writer, ended=max(by, time), undone_by=by)
        self._set(time, entry)

    # -- what is said of the table as a whole -------------------------------------------------------------------------

    def _report(self, state: str, problem: str) -> None:
        snapshot = self._snapshot
        self.summary: dict[str, Any] = {
            "uri": self.uri,
            "state": state,
            "problem": problem,
            "instants": len(self._shown),
            "pending": len(snapshot.pending),
            "aborted": len(snapshot.aborted),
            "losses": len(self._losses),
            "latest": snapshot.latest_completion,
            "unread": len(self._unread),
            "has_history": snapshot.has_history,
        }

    def check(self) -> None:
        """Errors: `InvalidRequest` where there is no table, `CorruptTable` for its properties."""
        load_table_config(self.storage)

    def close(self) -> None:
        """Gives up the connection to the lock service."""
        self.locks.close()


def _loss_json(loss: Loss) -> dict[str, Any]:
    return {**vars(loss), "file_groups": [f"{partition or '.'}/{file_id}" for partition, file_id in loss.file_groups]}
