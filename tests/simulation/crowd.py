"""Writers that meet all the time, so that they commit for each other, and some that think better of it.

A crowded run behaves in each commit as after a slot that was lost: it leaves its record at once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from random import Random  # noqa: TID251  (seeded)
from typing import Any

from actors import ACCOUNTS, JOURNALS, Actor, aborted_on_error
from plain_member import PlainMember
from seams import Place

from lakelatch.errors import LakelatchError
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.metadata import WRITER_KEY, CommitMetadata, WriteStat
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.attempts.attempt import run
from lakelatch.transactions.attempts.checks import At, in_order
from lakelatch.transactions.attempts.commit import Commit
from lakelatch.transactions.base.outcome import Displaced, Staged, committed_or_raise
from lakelatch.transactions.base.settings import NON_BLOCKING, OPTIMISTIC
from lakelatch.transactions.transaction import Transaction

STEPS_OF_GROUPS = ("group.after_record", "group.after_withdrawal")
STEPS = (
    *STEPS_OF_GROUPS,
    "commit.after_lock",
    *("commit.before_slot",) * 3,  # where a leader's slot may come so late that its number is free again
    "commit.after_slot",
    "commit.after_projection",
)


def hire(add: Callable[..., None], draw: Random) -> list[str]:
    """Three kinds that can be in one slot with their like, and perhaps some whose file groups are replaced."""
    add("crowd", 3, lambda actor, _: actor.append(), 4, 7)
    add("touches", 3, lambda actor, _: touch(actor), 3, 5)
    add("shifts", 2, lambda actor, _: move(actor), 3, 4)
    return ["shelf"] if draw.random() < 0.5 else []


def touch(actor: Actor) -> None:
    """Writes one account as it is: others of a group may do so with another account, but not with this one."""
    manager = actor.manager_for_write(OPTIMISTIC)
    manager.recover()
    transaction = manager.begin(for_tasks=False)
    with aborted_on_error(transaction):
        group = actor.random.choice(ACCOUNTS)
        base, balance = actor.read_account(group)
        content = {"group": group, "base": base, "optimistic": True, "balance": balance}
        stat = actor.add_file(transaction, group, content)
        actor.commit(transaction, CommitMetadata((stat,), "UPSERT", {WRITER_KEY: actor.name}))


class _Moves:
    """A commit that may find its rows displaced, once, by what nobody else knows."""

    def __init__(self, actor: Actor, transaction: Transaction, content: dict[str, Any], stat: WriteStat) -> None:
        self._actor, self._transaction, self._content, self._stat = actor, transaction, content, stat
        self._is_left = True

    def check(self, snapshot: Snapshot, at: At) -> Displaced | None:
        if not self._is_left or self._actor.random.random() < 0.4:
            return None
        self._is_left = False
        return Displaced({("", self._stat.file_id): JOURNALS[1]})

    def relocate(self, found: Displaced) -> Staged:
        actor, transaction = self._actor, self._transaction
        name = f"{JOURNALS[1]}_0_{transaction.instant}.log"
        data = json.dumps({**self._content, "group": JOURNALS[1], "work": actor.work}).encode()
        transaction.markers.create_data_file("", name, data)
        actor.place.count("moved")
        return Staged(self.metadata(WriteStat("", JOURNALS[1], name, file_size_bytes=1)))

    def metadata(self, stat: WriteStat) -> CommitMetadata:
        return CommitMetadata((stat,), "UPSERT", {WRITER_KEY: self._actor.name})


def move(actor: Actor) -> None:
    """Appends to a journal, or to the other one, as it finds out at its commit, when others may know its record."""
    manager = actor.manager_for_write(NON_BLOCKING)
    manager.recover()
    transaction = manager.begin()
    with aborted_on_error(transaction):
        content = {"group": JOURNALS[0], "base": [], "optimistic": False}
        stat = actor.add_file(transaction, JOURNALS[0], content)
        moves = _Moves(actor, transaction, content, stat)
        metadata = moves.metadata(stat)
        commit = Commit(manager.context).start(
            transaction, Staged(metadata), in_order([moves.check]), moves.relocate, member=PlainMember(metadata)
        )

        def work() -> None:
            try:
                committed_or_raise(run(manager.context, commit))
            except LakelatchError as error:
                transaction.fail(error)
                raise

        actor.told(transaction, work)


def count_groups(place: Place) -> None:
    """How many of the slots that are left have several events."""
    log = CommitLog(place.memory)
    sizes = Counter(event.number for event in log.events_after(0, log.tail()))
    for _ in range(sum(size > 1 for size in sizes.values())):
        place.count("slots of several")
