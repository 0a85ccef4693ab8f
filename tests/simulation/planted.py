"""Mistakes that can be planted in the product while it is simulated, to see that they are found."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from types import ModuleType
from typing import Any

from mistakes import Mistake
from mistakes_of_groups import OF_GROUPS
from mistakes_of_several import OF_SEVERAL

from lakelatch.engine.services.removals import archiving
from lakelatch.engine.services.removals.clean_planning import CleanPlanner
from lakelatch.engine.services.rewrites.clustering_commit import ClusteringCommit
from lakelatch.engine.write import first_bases
from lakelatch.engine.write.batches import BatchRegister
from lakelatch.engine.write.replace import Replacement
from lakelatch.format.index.file_index import FileIndex
from lakelatch.heartbeat.lease_beat import LeaseHeartbeat
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.projection import Projections
from lakelatch.timeline.log.rollbacks import Rollbacks
from lakelatch.transactions.attempts import cancellation, fate
from lakelatch.transactions.attempts.commit import Commit
from lakelatch.transactions.base.instant_clock import InstantClock
from lakelatch.transactions.base.outcome import Staged
from lakelatch.transactions.conflicts.strategies import SimpleConflictStrategy
from lakelatch.transactions.early.strategies import SimpleDirectStrategy
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.markers.direct import Markers
from lakelatch.transactions.undo import rollback

PLANTED: dict[str, Mistake] = {
    "no fence": Mistake(
        CommitLog,
        "_create",
        (
            (
                "if self._storage.put_if_absent(path, slot_bytes(events)):",
                "if self._storage.put(path, slot_bytes(events)) is None:",
            ),
        ),
        seeds=100,
    ),
    "no roll-forward": Mistake(
        CommitLog, "project", (("if tail.events and self.tail_number() == tail.number:", "if False:"),), seeds=100
    ),
    "no watermark": Mistake(
        CommitLog, "_counts", (("if self.tail_number() == event.number:", "if True:"),), seeds=100, first=500
    ),
    "below the watermark never counts": Mistake(
        CommitLog,
        "_counts",
        (("if self.projections.was_shown(event):", "if False:"),),
        seeds=2000,
    ),
    "what others archived is made again": Mistake(
        Projections,
        "_show",
        (("if event.kind == LOCKS:", "if True:"),),
        seeds=100,
    ),
    "no fresh time": Mistake(
        CommitLog,
        "create",
        (
            (
                "time = take_time(tail.time)",
                "kept, of = self.__dict__.setdefault('kept', {}), draft.operation_id\n"
                "    time = kept[of] = kept.get(of) or take_time(tail.time)",
            ),
            ("if time <= tail.time:", "if False:"),
        ),
        seeds=200,
    ),
    "no operation id": Mistake(
        CommitLog,
        "_create",
        (
            (
                "if stored:\n                return stored if _of_operation(stored, event.operation_id) else ()",
                "if stored:\n                return events",
            ),
        ),
        seeds=400,
    ),
    "a lost answer is a loss": Mistake(
        CommitLog,
        "_create",
        (("problem = error.message\n        except Unavailable:", "return None\n        except Unavailable:"),),
        seeds=300,
    ),
    "a slot whose follow-up failed is no commit": Mistake(
        CommitLog,
        "_in_doubt",
        (("return CommitUnknown(", "return Unavailable("),),
        seeds=1000,
    ),
    "conflicts are looked for once": Mistake(
        Commit,
        "decide",
        (
            (
                "at = At(self._context, self._owner.state, place, self._staged)",
                "at = self.__dict__.setdefault('once', At(self._context, self._owner.state, place, self._staged))",
            ),
        ),
        seeds=300,
    ),
    "times are not claimed": Mistake(
        InstantClock,
        "claim",
        (("if heartbeat.claim():", "if heartbeat.claim() or True:"),),
        seeds=600,
    ),
    "a rollback does not look at the log": Mistake(
        rollback,
        "_ensure_abortable",
        (("if victim not in pending and not may_be_beginning(context, victim, place.tail):", "if False:"),),
        seeds=50,
    ),
    "the list comes before the closing": Mistake(
        Markers,
        "close_and_sweep",
        (
            ("self.close()\n", "announced = self.announced(*meanwhile)\n    self.close()\n"),
            ("for path in self.announced(*meanwhile)", "for path in announced"),
        ),
        seeds=600,
        first=2400,
    ),
    "names get no tombstones": Mistake(
        Markers,
        "close_and_sweep",
        (
            (
                "sweep_file(self.storage, path)",
                'if self.storage.exists(path):\n            self.storage.put(path, b"")',
            ),
        ),
        seeds=200,
    ),
    "a swept name is free again": Mistake(
        Markers,
        "close_and_sweep",
        (
            (
                "sweep_file(self.storage, path)",
                'if not self.storage.put_if_absent(path, b""):\n            self.storage.delete(path)',
            ),
        ),
        seeds=50,
    ),
    "tasks trust the heartbeat alone": Mistake(
        Markers,
        "ensure_taking",
        (("if not is_open:", "if False:"),),
        seeds=100,
    ),
    "a lease outlives a claim that failed": Mistake(
        LeaseHeartbeat,
        "claim",
        (("with stopped_on_error(self):", "if True:"),),
        seeds=1000,
    ),
    "a replace commit conflicts with what it writes only": Mistake(
        Staged,
        "groups",
        (("self.metadata.file_groups() | self.metadata.replaced_file_groups()", "self.metadata.file_groups()"),),
        seeds=100,
    ),
    "what is replaced is chosen before the commit": Mistake(
        Replacement,
        "check",
        (("live |= write.file_groups", "live |= set()"),),
        seeds=100,
    ),
    "what others have replaced is replaced again": Mistake(
        Replacement,
        "check",
        (("live -= other.replaced_file_groups()", "live -= set()"),),
        seeds=400,
    ),
    "an executor does not look for a cancellation": Mistake(
        TransactionManager,
        "execute",
        (("if is_cancelled(context.storage, instant):", "if False:"),),
        seeds=200,
        stocked=True,
    ),
    "a cancellation is no event": Mistake(
        fate,
        "_ended_by",
        (("event.kind == ABORT or (event.kind == CANCEL and not event.file_groups)", "False"),),
        seeds=200,
        stocked=True,
    ),
    "a clustering ignores what was written meanwhile": Mistake(
        ClusteringCommit,
        "_touched",
        (("for write in completed:", "for write in ():"),),
        seeds=100,
        stocked=True,
    ),
    "a cleaner ignores plans that wait": Mistake(
        CleanPlanner,
        "_kept",
        (("if since is not None and kept < needed_at(group, since):", "if False:"),),
        seeds=400,
        stocked=True,
    ),
    "an archiver deletes before the manifest counts": Mistake(
        archiving._Run,
        "_archive",
        (
            (
                "written = {row.requested for row in self._writer.append(rows)}",
                "self._remove(candidates.whole.active.instants, {row.requested for row in rows})\n"
                "        written = {row.requested for row in self._writer.append(rows)}",
            ),
        ),
        seeds=50,
        stocked=True,
    ),
    "an abort leaves names free": Mistake(
        cancellation,
        "_sweep",
        (("for path in outputs.tombstones:", "for path in ():"),),
        seeds=100,
        first=700,
        stocked=True,
    ),
    "a copy-on-write commit does not look at what it merged": Mistake(
        SimpleConflictStrategy,
        "first",
        (("if write.operation_type in SERVICES_THAT_ADD_A_SLICE.values():", 'if write.action == "commit":'),),
        seeds=100,
        ledger=True,
    ),
    "a clean ignores savepoints": Mistake(
        CleanPlanner,
        "_look",
        (("if not holders:", "if True:"),),
        seeds=100,
        stocked=True,
    ),
    "a restore does not end writes that began before it": Mistake(
        fate,
        "_ended_by",
        (("if event.action == RESTORE and event.kind == PLAN:", "if False:"),),
        seeds=100,
        stocked=True,
    ),
    "what is taken back counts until that has begun": Mistake(
        Rollbacks,
        "_undone_by",
        (
            (
                "for one in found if one.action == RESTORE}",
                'for one in found if one.action == RESTORE and one.state != "requested"}',
            ),
            (
                "{one.requested for one in found} - restores",
                "{one.requested for one in found if one.completion} - restores",
            ),
        ),
        seeds=20,
        first=8934,
    ),
    "of two that meet both give way": Mistake(
        SimpleDirectStrategy,
        "look",
        (("if not other.inflight or order_of(other.instant) < order_of(detection.instant):", "if True:"),),
        seeds=50,
    ),
    "the later one ends the earlier one": Mistake(
        SimpleDirectStrategy,
        "look",
        (("order_of(other.instant) < order_of(detection.instant)", "other.instant > detection.instant"),),
        seeds=50,
    ),
    "a load does not look for other base files": Mistake(
        first_bases,
        "base_file_conflict",
        ((" or _has_base_file(storage, write, common)", ""),),
        seeds=100,
        loads=True,
    ),
    "a load does not look for plans that wait": Mistake(
        first_bases,
        "base_file_conflict",
        (("(*completed, *_planned(storage, snapshot))", "completed"),),
        seeds=200,
        loads=True,
    ),
    "a file index counts what was taken back": Mistake(
        FileIndex,
        "writes_since",
        (
            ("if any(one.requested not in", "if False and any(one.requested not in"),
            ("if any(whole.has_undone", "if False and any(whole.has_undone"),
        ),
        seeds=100,
        stocked=True,
    ),
    "a file index knows the writes of the active timeline alone": Mistake(
        FileIndex,
        "writes_since",
        (
            (
                "return whole.completed(WRITE_ACTIONS, after=self.moment)",
                "return [one for one in whole.active.completed if one.action in WRITE_ACTIONS "
                'and (one.completion or "") > self.moment]',
            ),
        ),
        seeds=100,
        stocked=True,
    ),
    "earlier tries of a batch are not looked at": Mistake(
        BatchRegister,
        "resolve",
        (("if one.name not in self._resolved and not self._resolve(one):", "if False:"),),
        seeds=100,
    ),
    "earlier tries of a batch may still commit": Mistake(
        BatchRegister,
        "_resolve",
        (("aborted = roll_back(self._manager.context, requested, action)", "aborted = False"),),
        seeds=100,
    ),
    "batches that have passed are not looked for": Mistake(
        BatchRegister,
        "_ensure_not_passed",
        (("if latest > self._batch.number:", "if False:"),),
        seeds=100,
    ),
    **OF_GROUPS,
    **OF_SEVERAL,
}


PROTECTIONS = ("no fence", "no roll-forward", "no watermark", "no fresh time", "no operation id")


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The product with this mistake for a block; "" for none."""
    if not name:
        yield
        return
    mistake = PLANTED[name]
    real = mistake.owner.__dict__[mistake.method]
    source = textwrap.dedent(inspect.getsource(_function(real)))
    for right, wrong in mistake.changes:
        assert source.count(right) == 1, f"{name}: {right!r} is not in {mistake.method} any more"
        source = source.replace(right, wrong)
    source = source.replace(
        "super()", f"super({mistake.owner.__name__}, self)"
    )  # which only a class body may leave out
    values: dict[str, Any] = {}
    exec(source, inspect.getmodule(mistake.owner).__dict__, values)
    wrong_one = values[mistake.method]
    if isinstance(wrong_one, cached_property) and isinstance(mistake.owner, type):
        wrong_one.__set_name__(mistake.owner, mistake.method)
    places = _places(mistake.owner, mistake.method, real)
    for place in places:
        setattr(place, mistake.method, wrong_one)
    try:
        yield
    finally:
        for place in places:
            setattr(place, mistake.method, real)


def _function(real: Any) -> Any:
    """What is behind a property."""
    if isinstance(real, property):
        return real.fget
    return real.func if isinstance(real, cached_property) else real


def _places(owner: type | ModuleType, name: str, real: Any) -> list[Any]:
    """Where a method or function is looked up: in its class, or in each module that has imported it."""
    if isinstance(owner, type):
        return [owner]
    loaded = [module for dotted, module in sys.modules.items() if dotted.startswith("lakelatch.")]
    return [module for module in loaded if getattr(module, name, None) is real]
