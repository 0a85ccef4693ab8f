"""The record of a commit that is ready: what others need in order to decide it, and to commit it with theirs (0037)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from lakelatch.storage.checksums import checksummed_json, open_checksummed_json
from lakelatch.timeline.actions import WRITE_ACTIONS
from lakelatch.timeline.log.commit_log import INLINE_LIMIT_BYTES
from lakelatch.timeline.log.events import COMPLETE, Event
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.timeline.snapshot import Mark
from lakelatch.transactions.attempts.checks import Check
from lakelatch.transactions.base.context import TransactionContext, TransactionState
from lakelatch.transactions.base.outcome import Staged
from lakelatch.transactions.base.ready import record_path

#: What a record that is none makes of it.
WRONG_VALUES = ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError
_FORMAT = 1


class Unfit(ValueError):
    """A file in the folder is no record that this version can read."""


@dataclass(frozen=True)
class ReadyCommit:
    """The record of a commit that is ready: what others need in order to decide and to commit it.

    `event` has no place yet. `facts` are for the checks of whoever made the files, as plain JSON values. Its files are
    closed: nothing but them is there, nor will be.
    """

    state: TransactionState
    event: Event
    mode: str
    strategy: str
    facts: Mapping[str, Any]

    @property
    def path(self) -> str:
        return record_path(self.state.instant)

    def to_bytes(self) -> bytes:
        mark = self.state.mark
        names = sorted(mark.names)
        return checksummed_json(
            {
                "format": _FORMAT,
                "event": self.event.values(),
                "slot": mark.slot,
                "time": mark.time,
                "names": names,
                "moving": [name for name in names if name in mark.moving],
                "began_ms": self.state.began_ms,
                "mode": self.mode,
                "strategy": self.strategy,
                "facts": self.facts,
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes, instant: str) -> ReadyCommit:
        """Errors: `Unfit` for what is no record of this instant."""
        try:
            values = open_checksummed_json(data)
            if values is None or values["format"] != _FORMAT:
                raise ValueError("its checksum is wrong, or it is of another version")
            event = Event.of_values(values["event"])
            if event.instant != instant or event.kind != COMPLETE or event.action not in WRITE_ACTIONS:
                raise ValueError("it is no write of this instant")
            if event.content_path or event.undoes or len(event.content) > INLINE_LIMIT_BYTES:
                raise ValueError("it is no write whose metadata is in it")
            texts = event.operation_id, event.writer, event.lock_domain, *values["names"], *values["moving"]
            if not all(isinstance(text, str) for text in texts) or not event.operation_id:
                raise ValueError("it has values of other types")
            names, moving = frozenset(values["names"]), frozenset(values["moving"])
            mark = Mark(int(values["slot"]), str(values["time"]), names, moving)
            state = TransactionState(instant, event.action, event.operation_id, mark, int(values["began_ms"]))
            return cls(state, event, str(values["mode"]), str(values["strategy"]), dict(values["facts"]))
        except WRONG_VALUES as error:
            raise Unfit(f"the record of {instant} cannot be read: {error}") from error


class GroupMember(Protocol):
    """What a commit knows that others need, and how it decides theirs."""

    def facts(self) -> Mapping[str, Any] | None:
        """What others need in order to decide this commit, as plain JSON values; None if they cannot."""
        ...

    def staged_of(self, record: ReadyCommit) -> Staged:
        """What another one's record commits. Errors: `Unfit`."""
        ...

    def checks_of(self, record: ReadyCommit) -> Sequence[Check]:
        """All checks of another one's record, in order. Errors: `Unfit`."""
        ...


def ready_commit(
    context: TransactionContext, state: TransactionState, metadata: CommitMetadata, member: GroupMember
) -> ReadyCommit | None:
    """The record of a commit, None if others cannot decide it or its metadata is too large to be passed around."""
    facts = member.facts()
    if facts is None:
        return None
    content = metadata.to_avro()
    if len(content) > INLINE_LIMIT_BYTES:
        return None
    domain = context.log.lock_domain
    groups = metadata.file_groups()
    event = Event(COMPLETE, state.action, state.instant, state.operation_id, context.writer, groups, content=content)
    settings = context.settings
    return ReadyCommit(state, replace(event, lock_domain=domain), settings.mode, settings.conflict_strategy, facts)
