"""Checks of transactions over several tables, and of the moments that were taken of them.

Each check yields sentences that name what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lakelatch.torture.check.evidence import Evidence, table_names
from lakelatch.torture.check.isolation import Key, Observed, isolation_holds
from lakelatch.torture.check.log_reading import Row
from lakelatch.torture.history.reading import Line

PURSES = "purses"
SERIALIZABLE = "serializable"


@dataclass(frozen=True)
class Move:
    """One try of a transaction over several tables, and what its caller was told; None if it died before that."""

    line: Line
    answer: Line | None
    resolved: Line | None

    @property
    def instants(self) -> dict[int, str]:
        """The instant of each part, by the number of its table."""
        return {int(number): instant for number, instant in self.line["instants"].items()}

    @property
    def outcome(self) -> str:
        return str(self.answer["outcome"]) if self.answer is not None else ""

    def __str__(self) -> str:
        return f"the work {self.line['work']} ({self.instants})"


@dataclass(frozen=True)
class Told:
    """What the clients of all tables told, and what is in these."""

    tables: Sequence[Evidence]
    moves: list[Move]
    moments: list[Line]

    @classmethod
    def of(cls, tables: Sequence[Evidence], lines: list[Line]) -> Told:
        """An answer is that of the last try before it; what was resolved is of the last try, too."""
        tries: dict[str, list[dict[str, Any]]] = {}
        for line in lines:
            if line["event"] == "moving":
                tries.setdefault(line["work"], []).append({"line": line, "answer": None, "resolved": None})
            kind = {"return": "answer", "resolved": "resolved"}.get(line["event"])
            if kind is not None and line["work"] in tries and tries[line["work"]][-1][kind] is None:
                tries[line["work"]][-1][kind] = line
        moves = [Move(**values) for found in tries.values() for values in found]
        return cls(tables, moves, [line for line in lines if line["event"] == "moment"])

    def parts_done(self, move: Move) -> list[int]:
        """The tables in which its part is committed."""
        return [number for number, instant in move.instants.items() if instant in self.tables[number].table.by_instant]

    def is_done(self, move: Move) -> bool:
        return bool(self.parts_done(move))

    def rows(self, number: int) -> Iterator[tuple[str, Row]]:
        """The rows of purses of a table, each with the completion time of its commit, in order."""
        for commit, rows in self.tables[number].table.written:
            yield from ((commit.completion, row) for row in rows if row.kind == PURSES)


def moves_are_whole(told: Told) -> Iterator[str]:
    """Each transaction is in all its tables or in none."""
    for move in told.moves:
        done = told.parts_done(move)
        if done and len(done) < len(move.instants):
            yield f"{move} is torn: it is committed in {_shown(told, done)} alone"


def answers_are_right(told: Told) -> Iterator[str]:
    """What was told is so, at once or when somebody asked for it."""
    for move in told.moves:
        done = told.is_done(move)
        if move.outcome == "committed" and not done:
            yield f"{move} was told committed, and is not: it is lost"
        if move.outcome in ("refused", "failed") and done:
            yield f"{move} was told {move.outcome}, and is committed"
        if move.resolved is not None and move.resolved["committed"] != done:
            yield f"{move} was resolved as {'' if not done else 'not '}committed, and it is not so"


def nothing_waits_for_a_decision(told: Told) -> Iterator[str]:
    """The last slot of no table is a part that nobody has decided."""
    for number, evidence in enumerate(told.tables):
        slot = evidence.table.undecided
        if slot is not None:
            yield f"slot {slot['number']} of {_shown(told, [number])} still waits for the decision {slot['decision']}"


def moments_show_what_was(told: Told) -> Iterator[str]:
    """A moment shows each table as it was at its time, and no money made or lost."""
    rows = [list(told.rows(number)) for number in range(len(told.tables))]
    for line in told.moments:
        total = 0
        for name, purses in line["purses"].items():
            time = line["times"][name]
            was = {
                row.key: [row.version, row.balance, row.work]
                for completion, row in rows[int(name)]
                if completion <= time
            }
            total += sum(balance for _, balance, _ in purses.values())
            if purses != was:
                wrong = ", ".join(sorted(key for key in was.keys() | purses.keys() if was.get(key) != purses.get(key)))
                yield f"{_moment(line)} saw {wrong} of {_shown(told, [int(name)])} as they were not at {time}"
        if total:
            yield f"{_moment(line)} saw balances whose sum over all tables is {total}"


def money_stays(told: Told) -> Iterator[str]:
    """The sum of all balances is 0 at the end."""
    last = {(number, row.key): row.balance for number in range(len(told.tables)) for _, row in told.rows(number)}
    if sum(last.values()):
        yield f"the sum of all purses of all tables is {sum(last.values())} at the end"


def isolation_is_kept(told: Told) -> Iterator[str]:
    """Transactions and moments have the isolation that they were promised."""
    orders: dict[Key, list[str]] = {}
    for number, name in enumerate(table_names(len(told.tables))):
        for _, row in told.rows(number):
            orders.setdefault((name, row.key), []).append(row.work)
    yield from isolation_holds([*_observed_moves(told), *_observed_moments(told, orders)], orders)


def _observed_moves(told: Told) -> Iterator[Observed]:
    names = table_names(len(told.tables))
    for move in told.moves:
        line = move.line
        if told.is_done(move):
            committed = move.answer is not None and move.outcome == "committed"
            yield Observed(
                line["work"],
                {(names[number], purse): work for number, purse, work in line["reads"]},
                {(names[number], purse): (line["work"],) for number, purse in line["writes"]},
                line["isolation"] == SERIALIZABLE,
                began=line["began_ns"],
                ended=int(move.answer["at_ns"]) if committed and move.answer is not None else None,
            )


def _observed_moments(told: Told, orders: dict[Key, list[str]]) -> Iterator[Observed]:
    names = table_names(len(told.tables))
    for line in told.moments:
        seen = {
            (names[int(name)], key): row[2] for name, purses in line["purses"].items() for key, row in purses.items()
        }
        reads = {key: seen.get(key, "") for key in orders.keys() | seen.keys()}
        yield Observed(_moment(line), reads, {}, True, True, line["began_ns"], line["ended_ns"])


def _moment(line: Line) -> str:
    return f"the moment of {line['process']} at {line['at_ns']}"


def _shown(told: Told, numbers: Sequence[int]) -> str:
    names = table_names(len(told.tables))
    return ", ".join(names[number] for number in numbers)
