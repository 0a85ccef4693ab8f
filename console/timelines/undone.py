"""Writes that were rolled back, and the writers that did it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakelatch.storage.contract import NotFound, Storage
from lakelatch.timeline.actions import RESTORE, ROLLBACK
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.log_reader import LogMoved
from lakelatch.timeline.service_metadata import read_rolled_back
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.conflicts.report import recent_losses


@dataclass(frozen=True)
class Undone:
    """One write that was undone by `rollback`, a requested time; `ended` is when that was requested.

    `writer` wrote it and `by` undid it; the names are "" if they are unknown. `winner` is the requested time of the
    write that it lost to, "" if it lost to none.
    """

    instant: str
    ended: str
    rollback: str
    writer: str = ""
    by: str = ""
    winner: str = ""
    winner_writer: str = ""

    @property
    def story(self) -> str:
        """A sentence: which write it lost to, or which writer rolled it back."""
        who = f"{self.writer or 'a writer'} ({self.instant})"
        if self.winner:
            return f"{who} lost to {self.winner_writer or 'another writer'} ({self.winner})"
        return f"{who} was rolled back by {self.by or 'another writer'}"


def undone_writes(storage: Storage) -> list[Undone]:
    """The writes named by rollbacks and restores on the active timeline, by requested time.

    Names come from the list of recent conflicts and from the slots that the commit log still has.
    """
    losses = {loss.instant: loss for loss in recent_losses(storage)}
    names = _names_in_log(storage)
    found: dict[str, Undone] = {}
    for done in Snapshot.load(storage).completed:
        if done.action not in (ROLLBACK, RESTORE):
            continue
        try:
            targets = read_rolled_back(storage.read(done.path), done.path)
        except NotFound:  # archived since
            continue
        for target in targets:
            loss = losses.get(target)
            found[target] = Undone(
                target,
                done.requested,
                done.requested,
                writer=loss.writer if loss else names.get(target, ""),
                by=names.get(done.requested, ""),
                winner=loss.winner if loss else "",
                winner_writer=loss.winner_writer if loss else "",
            )
    return [found[target] for target in sorted(found)]


def _names_in_log(storage: Storage) -> Mapping[str, str]:
    """The names of writers, by the requested time of their instants."""
    log = CommitLog(storage)
    try:
        events = log.events_after(0, log.tail())
    except LogMoved:
        return {}
    return {event.instant: event.writer for event in events}
