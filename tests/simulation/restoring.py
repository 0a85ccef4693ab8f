"""Savepoints of the stock, rollbacks of what has completed, and restores: the product's, beside all others."""

from __future__ import annotations

from actors import Actor
from seams import Place
from stock import CONFIG

from lakelatch.engine.services.restoring import restore, roll_back
from lakelatch.engine.services.savepoints import create_savepoint, delete_savepoint, savepoints
from lakelatch.errors import InvalidRequest
from lakelatch.timeline.actions import WRITE_ACTIONS
from lakelatch.timeline.instant import Instant
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.base.settings import NON_BLOCKING

_COMMITS_BACK = 4  # so many of the last commits at most
_LOOKS_MOST = 5  # for something to take back


def keep(actor: Actor, place: Place) -> None:
    """Makes a savepoint of one of the last commits, or gives one up."""
    manager, draw = actor.manager(NON_BLOCKING), actor.random
    manager.recover()
    there = savepoints(actor.storage)
    try:
        if there and draw.random() < 0.5:
            delete_savepoint(manager, draw.choice(there).instant)
            place.count("savepoint given up")
        elif commits := _last_commits(actor):
            create_savepoint(CONFIG, manager, draw.choice(commits).requested)
            place.count("savepoint")
    except InvalidRequest as error:
        place.count("savepoint refused")
        place.world.note(f"{actor.name}: {error.message}")


def undo(actor: Actor, place: Place) -> None:
    """Takes the table back to one of the last commits, or one of them back alone."""
    assert place.watch is not None
    manager, draw = actor.manager(NON_BLOCKING), actor.random
    manager.recover()
    commits = _last_commits(actor)
    if not commits:
        return
    chosen, whole = draw.choice(commits).requested, draw.random() < 0.5
    try:
        done = restore(CONFIG, manager, chosen) if whole else roll_back(manager, chosen)
    except InvalidRequest as error:
        place.count("restore refused" if whole else "rollback of a commit refused")
        place.world.note(f"{actor.name}: {error.message}")
        return
    place.count("restore" if whole else "rollback of a commit")
    place.world.note(f"{actor.name} has taken back {done.undone} with {done.instant}")
    place.watch.told_undone(done.undone)


def give_all_up(actor: Actor) -> None:
    """Gives each savepoint up, so that cleaners and archivers may go on."""
    for found in savepoints(actor.storage):
        delete_savepoint(actor.manager(NON_BLOCKING), found.instant)


def _last_commits(actor: Actor) -> list[Instant]:
    """The last commits, after a while in which others have worked."""
    writes: list[Instant] = []
    for _ in range(_LOOKS_MOST):
        actor.system.sleep(2 * actor.random.random())
        writes = [one for one in Snapshot.load(actor.storage).completed if one.action in WRITE_ACTIONS]
        if len(writes) > 1:
            break
    return sorted(writes, key=lambda one: one.completion or "")[-_COMMITS_BACK:]
