"""Mistakes of transactions over several tables: those of their model that exist in the product's code."""

from __future__ import annotations

from mistakes import Mistake

from lakelatch.engine.several import cut
from lakelatch.engine.several.transaction import TablesTransaction
from lakelatch.timeline.log import log_reader
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.decisions import Decisions
from lakelatch.timeline.log.log_reader import LogReader
from lakelatch.transactions.several import undecided
from lakelatch.transactions.several.parts import Parts
from lakelatch.transactions.transaction import Transaction

OF_SEVERAL: dict[str, Mistake] = {
    "decided before all parts are prepared": Mistake(
        Parts,
        "_is_prepared",
        (("all(part.event", "any(part.event"),),
        seeds=10,
        several=True,
    ),
    "a slot behind a part that is not decided": Mistake(
        LogReader,
        "_decided",
        (
            (
                "counts = self.decisions.counts(events[0], self._read(events[0].number + 1))",
                "try:\n"
                "        counts = self.decisions.counts(events[0], self._read(events[0].number + 1))\n"
                "    except Undecided:\n"
                "        counts = False",
            ),
        ),
        seeds=20,
        several=True,
    ),
    "a decision whose answer was lost is a commit": Mistake(
        Decisions,
        "decide",
        (("sent = True\n", "return self._keep(name, wanted)\n"),),
        seeds=100,
        several=True,
    ),
    "whoever is dead has not decided": Mistake(
        undecided,
        "abort",
        (("decisions.decide(event.home, event.decision, ABORT)", "decisions._keep(event.decision, ABORT)"),),
        seeds=100,
        several=True,
    ),
    "one look is a moment": Mistake(
        cut,
        "_look_again",
        (("if numbers[0] == tail.number:", "if True:"),),
        seeds=20,
        several=True,
    ),
    "conflicts since the part began": Mistake(
        Transaction,
        "conflicts_since",
        (("mark.slot < self.state.mark.slot:", "False:"),),
        seeds=20,
        several=True,
    ),
    "a decision that is removed while others need it": Mistake(
        Parts,
        "_decide",
        (
            (
                "if found.commits:\n",
                "if found.commits:\n"
                "        from lakelatch.timeline.log.decisions import DECISIONS_FOLDER\n"
                "        decisions._home(self.home.table).delete(f'{DECISIONS_FOLDER}/{self._decision}')\n",
            ),
        ),
        seeds=100,
        several=True,
    ),
    "all tries have one decision": Mistake(
        Parts,
        "prepared",
        (("decision_name(after_slot + 1, self.operation_id)", "decision_name(1, self.operation_id)"),),
        seeds=100,
        several=True,
    ),
    "an aborted event is a completion": Mistake(
        log_reader,
        "_aborted",
        (("tuple(event.aborted() for event in events)", "tuple(events)"),),
        seeds=20,
        several=True,
    ),
    "a part is shown before it is decided": Mistake(
        CommitLog,
        "create",
        (("and not prepared.decided(event):", "and False:"),),
        seeds=20,
        several=True,
    ),
    "told before all tables show it": Mistake(
        TablesTransaction,
        "_commit",
        (("has_ended = self._parts.await_ended()", "has_ended = True"),),
        seeds=10,
        several=True,
    ),
    "its own table is not asked first": Mistake(
        Decisions,
        "counts",
        (("if following:\n", "if False:\n"), ("if self._was_shown(event):\n", "if False:\n")),
        seeds=100,
        several=True,
    ),
}
