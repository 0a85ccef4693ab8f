"""Writes of numbered batches, each of which is written once however often it is tried."""

from __future__ import annotations

from actors import JOURNALS, Actor, aborted_on_error

from lakelatch.engine.options.batch import Batch
from lakelatch.engine.write.batches import BatchCommitted, BatchRegister
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.transactions.base.settings import NON_BLOCKING

_APPLICATION = "stream"


def write_batch(actor: Actor, number: int) -> None:
    """Writes one numbered batch of a stream, unless it has been written, as `lakelatch.write_batch` does."""
    manager = actor.manager(NON_BLOCKING)
    manager.recover()
    batch = Batch(_APPLICATION, number)
    register = BatchRegister(manager, batch)
    try:
        register.resolve()
        transaction = manager.begin()
        with aborted_on_error(transaction):
            register.register(transaction)
            content = {"group": JOURNALS[0], "base": [], "optimistic": False}
            stat = actor.add_file(transaction, JOURNALS[0], content)
            actor.commit(transaction, CommitMetadata((stat,), "UPSERT", batch.extra))
    except BatchCommitted as found:
        actor.place.count("batch found")
        actor.history.note("batch", actor.name, number=number, instant=found.details["result"].instant)
        return
    actor.history.note("batch", actor.name, number=number, instant=transaction.instant)
    register.tidy()
