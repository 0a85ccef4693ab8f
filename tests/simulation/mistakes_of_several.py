"""Mistakes of transactions over several tables: those of their model that exist in the product's code."""

from __future__ import annotations

from mistakes import Mistake

from lakelatch.engine.several import cut
from lakelatch.engine.several.transaction import TablesTransaction
from lakelatch.timeline.log import log_reader
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.decisions import Decisions
from lakelatch.transactions.several.parts import Parts
from lakelatch.transactions.transaction import Transaction

OF_SEVERAL: dict[str, Mistake] = {
    "decided before all parts are prepared": Mistake(
        Parts,
        "_is_prepared",
        (("all(part.event", "any(part.event"),),
        seeds=5,
        several=True,
    ),
    "a slot behind a part that is not decided": Mistake(
        Decisions,
        "counts",
        (("if found is None:", "if False:"),),
        seeds=5,
        several=True,
    ),
    "one look is a moment": Mistake(
        cut,
        "_look",
        (("if numbers[-1] != number or not events:", "if not events:"),),
        seeds=10,
        first=170,
        several=True,
    ),
    "conflicts since the part began": Mistake(
        Transaction,
        "reads_since",
        (("is_earlier and mark.slot <= begun.slot", "False"),),
        seeds=5,
        first=1,
        several=True,
    ),
    "an aborted event is a completion": Mistake(
        log_reader,
        "_aborted",
        (("tuple(event.aborted() for event in events)", "tuple(events)"),),
        seeds=5,
        several=True,
    ),
    "told before all tables show it": Mistake(
        TablesTransaction,
        "_commit",
        (("has_ended = self._parts.await_ended(", "has_ended = bool("),),
        seeds=5,
        first=2,
        several=True,
    ),
    "a part is shown before it is decided": Mistake(
        CommitLog,
        "create",
        (("and not prepared.decided(event):", "and False:"),),
        seeds=5,
        several=True,
    ),
    "a decision that is removed while others need it": Mistake(
        Parts,
        "_decide",
        (
            (
                "if found.commits:\n",
                "if found.commits:\n"
                "        decisions._home(self.home.table).delete(f'{DECISIONS_FOLDER}/{self._decision}')\n",
            ),
        ),
        seeds=10,
        first=15,
        several=True,
    ),
    "what a serializable transaction has only read is not held": Mistake(
        TablesTransaction,
        "_hold_what_was_read",
        (("sorted(self._read)", "[]"),),
        seeds=15,
        first=30,
        several=True,
    ),
}
