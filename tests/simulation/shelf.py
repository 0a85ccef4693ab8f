"""Writers of one partition that is overwritten again and again: puts into it, and replace commits over it.

What a replace commit takes away is chosen by the product, at its place in the log. Only what there was before is found
here, since simulated files are no slices.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

from actors import Actor, aborted_on_error, instant_of

from lakelatch.format.file_groups import replace_commit
from lakelatch.spark.table import OpenedTable
from lakelatch.spark.write.replace import Replacement, none_else
from lakelatch.storage.contract import Storage
from lakelatch.timeline.actions import INSERT_OVERWRITE, REPLACE_COMMIT
from lakelatch.timeline.history.whole_timeline import WholeTimeline
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.transactions.settings import NON_BLOCKING, OPTIMISTIC

SHELF = "shelf"


class _ShelfReplacement(Replacement):
    def __init__(self, storage: Storage, metadata: CommitMetadata, found: _Found, non_blocking: bool) -> None:
        self._table = cast(OpenedTable, SimpleNamespace(storage=storage))
        self._metadata, self._choose, self._non_blocking = metadata, none_else, non_blocking
        self._written = {SHELF}
        self._show(found)
        self.replaced = 0

    def _look(self) -> None:
        self._show(_Found(self._table.storage))

    def _show(self, found: _Found) -> None:
        self._seen, self._looked_at = found.seen, found.looked_at
        self._live, self._empty = frozenset((SHELF, group) for group in found.groups), frozenset()


class _Found:
    """The shelf as a reader finds it: who has written to each group that was not replaced, and all amounts."""

    def __init__(self, storage: Storage) -> None:
        whole = WholeTimeline.load(storage)
        times, self.looked_at = whole.all_completion_times(), whole.latest
        self.seen = frozenset(instant.file_name for instant in whole.active.completed)
        replaces = [replace_commit(storage, instant) for instant in whole.completed((REPLACE_COMMIT,))]
        gone = {group for one in replaces for _, group in one.replaced_file_groups()}
        self.groups: dict[str, set[str]] = {}
        self.amount = 0
        for name in storage.list(SHELF).files:
            group, instant = name.partition("_")[0], instant_of(name)
            if instant in times and group not in gone:
                content = storage.read(f"{SHELF}/{name}")
                if content:  # or it only bars the name of an attempt that was given up
                    self.groups.setdefault(group, set()).add(instant)
                    self.amount += int(json.loads(content)["amount"])


def put(actor: Actor) -> None:
    """Adds an amount, in a group of its own or in one that is there; that one must not have been replaced meanwhile."""
    optimistic = actor.random.random() < 0.7
    manager = actor.manager(OPTIMISTIC if optimistic else NON_BLOCKING)
    manager.recover()
    transaction = manager.begin()
    with aborted_on_error(transaction):
        group, base = f"s{transaction.instant}", set[str]()
        if actor.random.random() < 0.6:
            groups = _Found(actor.storage).groups
            if groups:
                group = actor.random.choice(sorted(groups))
                base = groups[group]
        content = {"group": group, "base": sorted(base), "optimistic": optimistic, "amount": actor.random.randrange(99)}
        actor.commit(transaction, CommitMetadata((actor.add_file(transaction, group, content, SHELF),), "UPSERT"))


def overwrite(actor: Actor) -> None:
    """Puts one group in place of all; under optimistic control with exactly the amounts that it takes away."""
    optimistic = actor.random.random() < 0.7
    manager = actor.manager(OPTIMISTIC if optimistic else NON_BLOCKING)
    manager.recover()
    transaction = manager.begin("replacecommit")
    with aborted_on_error(transaction):
        found, group = _Found(actor.storage), f"s{transaction.instant}"
        content: dict[str, Any] = {"group": group, "base": [], "optimistic": optimistic, "amount": found.amount}
        stat = actor.add_file(transaction, group, {**content, "took": sorted(found.groups)}, SHELF)
        metadata = CommitMetadata((stat,), INSERT_OVERWRITE.upper())
        replacement = _ShelfReplacement(actor.storage, metadata, found, not optimistic)
        actor.commit(transaction, metadata, replacement.resolve)
