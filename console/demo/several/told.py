"""What the processes of the demo with `--tables` have told: transactions, deaths, and sums that were read."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakelatch.console.demo.events import read_events
from lakelatch.console.demo.several.plan import BEFORE, READER, SeveralPlan


@dataclass
class Move:
    """One try of a transaction, as its writer saw it. `times` are the completion times in each table."""

    writer: str
    begun_ms: int
    prepared_ms: int = 0
    decided_ms: int = 0
    ended_ms: int = 0
    batch: int = 0
    times: Mapping[str, str] = field(default_factory=dict)
    killed_at: str = ""

    @property
    def committed(self) -> bool:
        return bool(self.times)


@dataclass(frozen=True)
class Death:
    """A writer that was killed, and what its next process found: the last of its batches that was committed."""

    writer: str
    point: str
    at_ms: int
    batch: int
    found: int | None = None

    @property
    def right(self) -> bool:
        """Whether the transaction is committed if it was decided, and gone if it was not."""
        return self.found == (self.batch - 1 if self.point == BEFORE else self.batch)


@dataclass(frozen=True)
class Told:
    """Of a whole run."""

    moves: tuple[Move, ...]
    deaths: tuple[Death, ...]
    cuts: tuple[tuple[int, bool], ...]  # when, and whether the sums of all tables were the same
    one_by_one: tuple[tuple[int, bool], ...]

    @classmethod
    def of(cls, plan: SeveralPlan) -> Told:
        found = {name: read_events(plan.events_file(name)) for name in plan.names}
        read = read_events(plan.events_file(READER))
        return cls(
            tuple(move for name, events in found.items() for move in _moves(name, events)),
            tuple(death for name, events in found.items() for death in _deaths(name, events)),
            tuple(_sums(read, "cut")),
            tuple(_sums(read, "one by one")),
        )

    @property
    def committed(self) -> list[Move]:
        return [move for move in self.moves if move.committed]

    def waited_s(self, death: Death) -> float | None:
        """How long it took after a death until others committed."""
        later = [move.ended_ms for move in self.committed if move.ended_ms > death.at_ms]
        return (min(later) - death.at_ms) / 1000 if later else None

    @property
    def figures(self) -> Mapping[str, str]:
        """For people."""
        done = self.committed
        span_s = (max(move.ended_ms for move in done) - min(move.begun_ms for move in self.moves)) / 1000 if done else 0
        lost = sum(bool(move.ended_ms) and not move.committed for move in self.moves)
        median_ms = statistics.median(move.ended_ms - move.begun_ms for move in done) if done else 0
        shown = {
            "transactions": f"{len(done):,} committed, {len(done) / max(span_s, 0.001):.1f}/s, {median_ms:,.0f} ms in "
            f"the median; {lost:,} lost to others, and were tried again with what is there now",
        }
        for death in self.deaths:
            waited_s = self.waited_s(death)
            went_on = "nobody has committed since" if waited_s is None else f"others went on {waited_s:.1f} s later"
            fate = "aborted by others" if death.point == BEFORE else "taken over by others"
            shown[f"{death.writer}, killed {_where(death)}"] = f"its batch {death.batch} was {fate}; {went_on}"
        apart = sum(not same for _, same in self.one_by_one)
        shown["tables read one by one"] = f"apart in {apart:,} of {len(self.one_by_one):,} reads"
        return shown


def _where(death: Death) -> str:
    return f"{'before' if death.point == BEFORE else 'after'} its decision"


def _moves(writer: str, events: Sequence[Mapping[str, Any]]) -> Iterator[Move]:
    move: Move | None = None
    for event in events:
        kind, at_ms = event["event"], int(event["at_ms"])
        if kind == "begun":
            move = Move(writer, at_ms)
            yield move
        elif move is None:
            continue
        elif kind == "prepared":
            move.prepared_ms = at_ms
        elif kind == "decided":
            move.decided_ms = at_ms
        elif kind == "killed":
            move.killed_at = str(event["point"])
        elif kind in ("commit", "lost"):
            move.ended_ms, move.batch = at_ms, int(event["batch"])
            move.times = event.get("times", {})


def _deaths(writer: str, events: Sequence[Mapping[str, Any]]) -> Iterator[Death]:
    last, death = 0, None
    for event in events:
        if event["event"] == "commit":
            last = int(event["batch"])
        elif event["event"] == "killed":
            death = Death(writer, str(event["point"]), int(event["at_ms"]), last + 1)
        elif event["event"] == "resumed" and death is not None:
            yield Death(death.writer, death.point, death.at_ms, death.batch, int(event["last"]))
            death = None
    if death is not None:
        yield death


def _sums(events: Sequence[Mapping[str, Any]], kind: str) -> Iterator[tuple[int, bool]]:
    for event in events:
        if event["event"] == kind:
            yield int(event["at_ms"]), all(sums == event["sums"][0] for sums in event["sums"])
