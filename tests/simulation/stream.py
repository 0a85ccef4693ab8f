"""A stream whose batches are numbered, and are written by two processes at once, each as often as it takes."""

from __future__ import annotations

from actors import JOURNALS, Actor, aborted_on_error

from lakelatch.spark.write.streaming.batch import Batch
from lakelatch.spark.write.streaming.register import BatchCommitted, BatchRegister
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.transactions.settings import NON_BLOCKING

APPLICATION = "stream"


def write_batch(actor: Actor, number: int) -> None:
    """Writes one batch, unless it has been written, as `lakelatch.write_batch` does."""
    manager = actor.manager(NON_BLOCKING)
    manager.recover()
    batch = Batch(APPLICATION, number)
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
