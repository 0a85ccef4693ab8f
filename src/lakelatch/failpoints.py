"""Named points between the steps of the protocol at which a test can stop, kill or fail the process.

They cost a dictionary look-up when off. `LAKELATCH_FAILPOINTS=commit.after_slot=kill,mark.after=raise` turns some on
for a process and its children; `active` does it for a block. `raise@3` acts at the third visit only. `calling` has a
test's own function called at points, for a block.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from lakelatch.errors import InvariantBroken, Unavailable

NAMES = (
    "create.before_properties",
    "create.after_properties",
    "begin.after_claim",
    "begin.after_open",
    "begin.after_requested",
    "begin.after_inflight",
    "batch.after_register",
    "write.before_rows",
    "mark.after",
    "data.after",
    "close.after",
    "commit.after_lock",
    "commit.after_check",
    "commit.before_slot",
    "commit.after_slot",
    "commit.after_projection",
    "lock.after_release",
    "group.after_record",
    "group.after_withdrawal",
    "several.before_decision",
    "several.after_decision",
    "compact.after_base_file",
    "compact.before_commit",
    "cluster.before_commit",
    "cluster.after_given_up",
    "relocate.after_reopen",
    "relocate.after_file",
    "rebase.after_file",
    "execute.after_inflight",
    "cancel.after_request",
    "cancel.after_claim",
    "cancel.before_files",
    "cancel.after_files",
    "cancel.after_aborted",
    "cancel.after_plan_gone",
    "cancel.after_claim_gone",
    "cancel.after_sweep",
    "rollback.after_slot",
    "rollback.after_plan",
    "rollback.after_files",
    "rollback.after_completed",
    "clean.after_plan",
    "clean.before_files",
    "clean.after_file",
    "clean.before_commit",
    "undo.after_completed_file",
    "restore.after_slot",
    "restore.after_claim",
    "restore.after_instant",
    "restore.after_completed",
    "savepoint.after_inflight",
    "savepoint.after_witness",
    "cleanup.after_markers",
    "log.after_removal",
    "archive.after_level_file",
    "archive.after_manifest",
    "archive.after_version",
    "archive.after_pending",
    "archive.after_completed",
    "archive.after_orphan",
    "archive.after_tombstones",
    "archive.after_merged_file",
    "archive.after_old_level_files",
)
ENVIRONMENT_VARIABLE = "LAKELATCH_FAILPOINTS"
_CALL = "call"  # which no text can ask for


class FailpointHit(Unavailable):
    """A test asked this step to fail."""


def _parse(text: str) -> dict[str, tuple[str, int]]:
    """`name=action[@visit]` pairs; visit 0 means every visit."""
    points: dict[str, tuple[str, int]] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, _, action = pair.partition("=")
        action, at, visit = action.partition("@")
        known = name in NAMES and action in ("stop", "kill", "raise")
        if not known or (at and not (visit.isdecimal() and int(visit) > 0)):
            raise InvariantBroken(f"no failpoint, action or visit of this name: {pair!r}")
        points[name] = (action, int(visit) if at else 0)
    return points


_active: dict[str, tuple[str, int]] = _parse(os.environ.get(ENVIRONMENT_VARIABLE, ""))
_visits: dict[str, int] = {}
_tell: Callable[[str, str], None] | None = None
_functions: dict[str, Callable[[str], object]] = {}


def failpoint(name: str) -> None:
    """Acts if this point is on: `stop` and `kill` signal the own process, `raise` raises `FailpointHit`."""
    if name in _active:
        _act(name)


def _act(name: str) -> None:
    action, wanted = _active[name]
    if action == _CALL:
        _functions[name](name)
        return
    _visits[name] = _visits.get(name, 0) + 1
    if wanted and _visits[name] != wanted:
        return
    if _tell is not None:
        _tell(name, action)
    if action == "raise":
        raise FailpointHit(f"failpoint {name} was told to fail")
    os.kill(os.getpid(), signal.SIGSTOP if action == "stop" else signal.SIGKILL)


def turn_on(text: str, tell: Callable[[str, str], None] | None = None) -> None:
    """Makes these the only failpoints of this process, counting visits anew; `tell(name, action)` is called first."""
    global _tell
    wanted = _parse(text)
    _active.clear()
    _visits.clear()
    _tell = tell
    _active.update(wanted)


@contextmanager
def active(text: str) -> Iterator[None]:
    """Turns failpoints on for a block, in this process only."""
    before = dict(_active)
    _active.update(_parse(text))
    _visits.clear()
    try:
        yield
    finally:
        _active.clear()
        _active.update(before)


@contextmanager
def calling(function: Callable[[str], object], names: Iterable[str]) -> Iterator[None]:
    """Has `function(name)` called whenever this process comes to one of these points, for a block.

    What it raises goes on from there. Errors: `InvariantBroken` for a name that is none.
    """
    before, functions = dict(_active), dict(_functions)
    for name in names:
        if name not in NAMES:
            raise InvariantBroken(f"no failpoint of this name: {name!r}")
        _active[name], _functions[name] = (_CALL, 0), function
    try:
        yield
    finally:
        _active.clear()
        _active.update(before)
        _functions.clear()
        _functions.update(functions)
