"""The bounds of `tables_model`, and the protocol that it tries."""

from __future__ import annotations

from dataclasses import dataclass

from tables_state import Event, State, Table


@dataclass(frozen=True)
class TableRules:
    """The bounds, and then the protocol: each value that differs from the default of the latter plants one mistake."""

    transactions: tuple[tuple[int, ...], ...] = ((0, 1), (0, 1))  # the tables of each, in the order of its intents
    only_read: tuple[tuple[int, ...], ...] = ((), ())  # those among them of which it puts a read intent
    writers: tuple[int, ...] = ()  # the table of each plain writer
    recoveries: tuple[tuple[int, int], ...] = ()  # which part each rolls back: transaction, table
    resolvers: tuple[int, ...] = ()  # the transaction whose end each finds out, for a caller who was told nothing
    cut: tuple[int, ...] = ()  # the tables of a reader that takes a cut
    conflicts: bool = True  # all that is written to a table is in one file group, under optimistic control
    serializable: bool = False
    attempts: int = 1  # how many tries a transaction has, with the same files
    races_most: int = 0  # so often may a slot be lost before its writer stops
    passes_most: int = 3  # of a cut
    slots_kept: int = 9
    late_puts: int = 0  # for so many puts of owners the answer is lost, and they arrive late, or once more
    patient: bool = False  # nobody is taken for dead
    begins_later: bool = False  # the parts of a transaction begin after it has read, and only then keep slots
    gives_way: str = "greater"  # who, with intents of its own, aborts its try to wait for another one; "both"; ""
    deletes: str = "ended"  # which decisions go: commits whose owner has made all files, and was sure, and aborts whose
    # owner has gone on, with a slot behind each intent; "shown": commits whose files are there; "of others": aborts
    # whose owner may be asleep; "unsaid": aborts without a slot behind each intent; "": none
    all_intents_first: bool = True  # the decision is put after all intents; False: before the last one
    verifies: bool = True  # the tail is looked at after each intent
    waits_for_decision: bool = True  # nobody appends behind an intent that nothing decides
    keeps_undecided: bool = True  # nor takes it off the log
    looks_at_tail: bool = True  # who waits for a decision, which may have gone by now
    looks_for_file: bool = True  # who finds no decision, or an abort, believes a completed file that is there by now
    create_only: bool = True  # a decision is put if absent
    reads_decision: bool = True  # who has put an abort reads what is there
    looks_behind: bool = True  # who is unsure believes the table before the object: a slot behind the intent, the file
    checks_from_cut: bool = True  # conflicts are looked for from where the transaction has read
    looks_at_timeline: bool = True  # also where the slots since then are gone
    read_intents: bool = True  # what is only read is checked with an intent of its own
    shows_decided: bool = True  # completed files are made after the decision
    tells_shown: bool = True  # and the caller is told after them
    cut_by: str = "two passes"  # "one pass"; "ids": tables that miss what another one has committed are read again
    cut_confirms: bool = True  # it lists once more behind the decisions that it has found
    cut_lists_files: bool = True  # what it saw with the first listing was decided before
    cut_asks_again: bool = True  # and then asks for those that were not there, too
    undecided_counts: bool = False  # for a cut

    def decision(self, who: int, attempt: int) -> int:
        """Which decision is that of an attempt."""
        return who * self.attempts + attempt

    def says(self, state: State, intent: Event) -> str:
        """What the decision on an intent says now."""
        return state.decisions[self.decision(intent.who, intent.attempt)]

    def lowest(self, table: Table) -> int:
        """The watermark; slots below it are gone."""
        return max(0, len(table.log) - self.slots_kept)
