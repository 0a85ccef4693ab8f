"""A table's locks as a reader's options reach them, for people: who holds, who waits, and whose locks they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakelatch.heartbeat.contract import HEARTBEAT_KEYS
from lakelatch.locks.contract import Holder, LockProvider
from lakelatch.storage.uris import without_secrets
from lakelatch.timeline.log.lock_names import agree, named_locks, split_locks


@dataclass(frozen=True)
class LockState:
    """What one look at a table's locks has found.

    `name` is of the locks to which the options lead, and `of_table` of those that the table's log names, each with its
    id. `held` are without the leases by which writers prove that they live, whose keys are `heartbeats`. `options` are
    those that lead to the locks, without secrets.
    """

    name: str
    of_table: str
    held: tuple[Holder, ...]
    heartbeats: frozenset[str]
    options: Mapping[str, str]

    @property
    def are_the_tables(self) -> bool:
        """Whether these are the locks that the table's writers take, as far as their names say it.

        They are not if the service keeps no id for them, and the table's log names one.
        """
        (kind, lock_id), (of_table, its_id) = split_locks(self.name), split_locks(self.of_table)
        return agree(self.of_table, self.name) and not (its_id and not lock_id and kind == of_table)

    @property
    def lock_id(self) -> str:
        """The id of the locks to which the options lead; empty if there is none."""
        return split_locks(self.name)[1]


def look_at_locks(provider: LockProvider, of_table: str, lock_id: str = "") -> LockState:
    """Asks the lock service who holds what, and for the id of the table's locks unless that is known.

    Errors: those of `LockProvider.ask`.
    """
    holders = provider.holders()
    return LockState(
        named_locks(provider.domain, lock_id or provider.lock_id() or ""),
        of_table,
        tuple(one for one in holders if not one.key.startswith(HEARTBEAT_KEYS)),
        frozenset(one.key for one in holders if one.key.startswith(HEARTBEAT_KEYS)),
        {key: without_secrets(value) for key, value in provider.record().items()},
    )
