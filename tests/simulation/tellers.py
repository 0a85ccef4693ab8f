"""Processes at work on several tables: they move amounts in one transaction, look at one moment, and keep each table.

The transaction, its parts and the moment are the product's; only the files of a part are simulated.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from actors import ACCOUNTS, WRITES, Actor, instant_of
from course import Setting, Told
from seams import Place
from world import Process

from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.several.cut import TableMoment, take_cut
from lakelatch.engine.several.resolving import resolve
from lakelatch.engine.several.transaction import SERIALIZABLE, SNAPSHOT, TablesTransaction
from lakelatch.engine.write.attempt import Write
from lakelatch.engine.write.commit import StagedFiles
from lakelatch.engine.write.rebase import LostFiles
from lakelatch.errors import CommitUnknown, LakelatchError, WriteConflict
from lakelatch.storage.contract import Storage
from lakelatch.timeline.metadata import WRITER_KEY, CommitMetadata
from lakelatch.transactions.attempts.checks import in_order
from lakelatch.transactions.attempts.commit import Commit
from lakelatch.transactions.base.outcome import Staged
from lakelatch.transactions.base.settings import OPTIMISTIC
from lakelatch.transactions.conflicts.report import Work
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.several.part import Part
from lakelatch.transactions.transaction import Transaction

MOVED_OF = ACCOUNTS[:2]  # what is moved between tables; the third account of each is moved within it alone
_RESOLVED_WITHIN = 400
_CHANGED_ITS_MIND, _CHANGES_TWICE = 0.06, 0.4


class ChangedItsMind(LakelatchError):
    """The block has raised, for reasons of its own."""


@dataclass
class Move:
    """One transaction over several tables as its caller knows it: an instant for each table that it writes, or more."""

    process: str
    isolation: str
    tables: tuple[str, ...]
    began_ns: int
    instants: dict[str, str] = field(default_factory=dict)
    more: list[tuple[str, str]] = field(default_factory=list)  # (table, instant) of changes after the first one
    read: dict[tuple[str, str], list[str]] = field(default_factory=dict)  # (table, account): who had written it
    wrote: dict[tuple[str, str], str] = field(default_factory=dict)
    outcome: str = ""
    told_ns: int = -1
    resolved: bool | None = None

    @property
    def written(self) -> list[tuple[str, str]]:
        """The table and the instant of each change."""
        return [*self.instants.items(), *self.more]

    @property
    def count(self) -> int:
        """How many there are if all of it is committed."""
        return len(self.tables) + len(self.more)


@dataclass
class Seen:
    """One moment of all tables that somebody has taken, in virtual time between two."""

    process: str
    began_ns: int
    ended_ns: int
    slots: tuple[int, ...]
    instants: frozenset[tuple[str, str]]  # (table, instant)


@dataclass
class Ledger:
    """What all processes together know: the checker's evidence beside the tables."""

    moves: list[Move] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)


class Teller(Actor):
    """A process that works on all tables. Its desks are the same process at one table each."""

    def __init__(
        self, places: Sequence[Place], setting: Setting, told: Sequence[Told], ledger: Ledger, name: str
    ) -> None:
        process = Process(places[0].world, name)
        super().__init__(places[0], setting, told[0], name, process, self.open_table)
        self.ledger = ledger
        self.desks = {
            place.uri: Actor(place, setting, history, name, process, self.open_table)
            for place, history in zip(places, told, strict=True)
        }

    def open_table(self, uri: str) -> Storage:
        """A table's storage as this process reaches it."""
        return self.desks[uri].storage

    @property
    def storages(self) -> dict[str, Storage]:
        return {uri: desk.storage for uri, desk in self.desks.items()}

    def at_one(self, work: Callable[[Actor], None]) -> None:
        """Does something at one of the tables."""
        desk = self.random.choice(list(self.desks.values()))
        desk.work = f"{self.work} at {desk.place.name}"
        work(desk)

    def note_conflict(self, error: WriteConflict) -> None:
        """Not noted: it does not say of which table it is."""

    # -- writers ----------------------------------------------------------------------------------------------------

    def move(self) -> None:
        """Reads accounts of two or three tables at one moment, and moves amounts between them."""
        count = self.random.choice((2, 2, 3))
        chosen = self.random.sample(list(self.desks), count)
        isolation = SERIALIZABLE if self.random.random() < 0.4 else SNAPSHOT
        reads_more = self.random.random() < (0.8 if isolation == SERIALIZABLE else 0.3)
        only_read = [uri for uri in self.desks if uri not in chosen] if reads_more else []
        made = Move(self.name, isolation, tuple(sorted(chosen)), self.place.world.now_ns)
        self.ledger.moves.append(made)
        amounts = [self.random.randrange(1, 100) for _ in chosen[1:]]
        changes = [-sum(amounts), *amounts]
        try:
            with _Transaction(self, isolation) as transaction:
                for uri in only_read:
                    self._read(made, transaction, uri, MOVED_OF[0])
                found = {uri: self._read(made, transaction, uri, self.random.choice(MOVED_OF)) for uri in chosen}
                for uri, change in zip(chosen, changes, strict=True):
                    group, base, balance = found[uri]
                    content = {"group": group, "base": base, "optimistic": True, "balance": balance + change}
                    begin = self.random.choice((transaction.run, transaction.start))
                    begin(uri, partial(self._write_part, made, uri, group, content))
                if self.random.random() < _CHANGES_TWICE:
                    amount = self.random.randrange(1, 100)
                    for uri, before, change in zip(chosen, changes, (amount, -amount), strict=False):
                        self._change_again(made, transaction, uri, found[uri], before, change)
                if self.random.random() < _CHANGED_ITS_MIND:
                    raise ChangedItsMind("it has changed its mind")
        except CommitUnknown as error:
            self._tell_move(made, "unknown")
            self._resolve(made, error)
            raise
        except LakelatchError:
            self._tell_move(made, "refused")
            raise
        self._tell_move(made, "committed")

    def _read(self, made: Move, transaction: TablesTransaction, uri: str, group: str) -> tuple[str, list[str], int]:
        base, balance = self.desks[uri].read_account(group, transaction.moment_of(uri))
        made.read[uri, group] = base
        return group, base, balance

    def _change_again(
        self,
        made: Move,
        transaction: TablesTransaction,
        uri: str,
        found: tuple[str, list[str], int],
        before: int,
        change: int,
    ) -> None:
        """Reads what it has just written, and changes that."""
        group, base, balance = found
        staged, first = transaction.staged_in(uri), made.instants[uri]
        assert staged is not None
        shown = [instant_of(name) for name in staged.names("") if name.startswith(f"{group}_")]
        if first not in shown or not any(name.startswith(f"{first}_") for name in staged.files):
            self.history.wrong(f"{self.name} does not see its own {first} in {uri}")
        content = {"group": group, "base": sorted({*base, first}), "optimistic": True}
        again = {**content, "balance": balance + before + change}
        transaction.run(uri, partial(self._write_part, made, uri, group, again))

    def _write_part(self, made: Move, uri: str, group: str, content: dict[str, Any]) -> CommitResult:
        desk = self.desks[uri]
        desk.work = f"{self.work}{' again' * (uri in made.instants)}"
        manager = desk.manager(OPTIMISTIC, anew=True)
        manager.recover()
        return _PartWrite(desk, manager, made, group, content).committed()

    def _tell_move(self, made: Move, outcome: str) -> None:
        made.outcome, made.told_ns = outcome, self.place.world.now_ns
        self.place.count(f"{outcome} in several")
        self.place.world.note(f"{self.name} was told {outcome} {made.instants}")
        for uri, instant in made.written:
            desk = self.desks[uri]
            found = [one.completion for one in _completed_now(desk.place) if one.requested == instant]
            completion = found[0] if found else ""
            if outcome == "committed" and not found:
                self.history.wrong(f"{self.name} was told committed, and {uri} does not show {instant} yet")
            told = {"instant": instant, "outcome": outcome, "completion": completion}
            work = f"{self.work}{' again' * ((uri, instant) in made.more)}"
            desk.history.note("return", self.name, work=work, role="write", **told)

    def _resolve(self, made: Move, error: CommitUnknown) -> None:
        for _ in range(_RESOLVED_WITHIN):
            try:
                made.resolved = resolve(error, system=self.system, open_table=self.open_table)
            except LakelatchError as problem:
                self.place.count(f"resolve: {type(problem).__name__}")
                if type(problem).__name__ == "InvalidRequest":
                    self.place.count("cannot be resolved")
                    return
                self.system.sleep(0.2)
            else:
                self.place.count(f"resolved as {made.resolved}")
                return
        self.history.wrong(f"{self.name} could not resolve its transaction: {error.message}")

    # -- those who look after tables, and readers -------------------------------------------------------------------

    def resolve_one(self) -> None:
        """Asks what has become of whatever a table ends with, as somebody who has seen it wait."""
        uri = self.random.choice(list(self.desks))
        found = resolve(uri, system=self.system, open_table=self.open_table)
        self.place.count(f"asked, and it was {found}")

    def look(self) -> None:
        """Takes one moment of all tables, at which the sum of all accounts is 0."""
        began_ns = self.place.world.now_ns
        moments = take_cut(self.storages, None, self.system, self.open_table)
        ended_ns = self.place.world.now_ns
        self.check(moments, began_ns, ended_ns)
        self.place.count("moments")

    def check(self, moments: Sequence[TableMoment], began_ns: int, ended_ns: int) -> None:
        """Reads all accounts at a moment: its files never change, so that takes no time here."""
        balances, slots, instants = {}, [], set[tuple[str, str]]()
        for moment in moments:
            place = self.desks[moment.path].place
            done = {
                one.requested: one.completion or ""
                for one in self.completed_in(place.memory)
                if one.action in WRITES and (one.completion or "") <= moment.time
            }
            balances[place.name] = balances_of(place, done)
            instants.update((moment.path, instant) for instant in done)
            slots.append(moment.mark.slot if moment.mark is not None else -1)
        if sum(sum(of_table.values()) for of_table in balances.values()):
            self.history.wrong(f"{self.name} saw money made or lost at {moments}: {balances}")
        self.ledger.seen.append(Seen(self.name, began_ns, ended_ns, tuple(slots), frozenset(instants)))

    def look_on(self, how_far: Callable[[], int]) -> None:
        """Looks again and again until the run is over."""
        while True:
            stage = how_far()
            try:
                self.look()
            except LakelatchError as error:
                self.place.count(f"no moment: {type(error).__name__}")
                if stage == 2:
                    self.history.wrong(f"{self.name} gets no moment after the faults: {error.message}")
            if stage == 2:
                return
            self.system.sleep((0.05 + self.random.random() * 0.5) * (1, 5)[stage])


class _Transaction(TablesTransaction):
    """Over all tables of a teller. A read of a table that it does not write is held with the teller's own locks."""

    def __init__(self, teller: Teller, isolation: str) -> None:
        super().__init__(list(teller.desks), None, isolation, teller.system, teller.open_table)
        self._teller = teller

    def _manager_of(self, path: str) -> AbstractContextManager[TransactionManager]:
        return nullcontext(self._teller.desks[path].manager(OPTIMISTIC, anew=True))


class _PartWrite(Write):
    """A write of one account in one table, whose file is simulated."""

    def __init__(
        self, desk: Actor, manager: TransactionManager, made: Move, group: str, content: dict[str, Any]
    ) -> None:
        super().__init__(manager.context)
        self._desk, self._manager, self._move, self._group, self._content = desk, manager, made, group, content

    def begin(self, kept: LostFiles | None) -> Transaction:
        desk = self._desk
        transaction = self._manager.begin(for_tasks=not (desk.setting.own_files and desk.random.random() < 0.5))
        if desk.place.uri in self._move.instants:
            self._move.more.append((desk.place.uri, transaction.instant))
        self._move.instants.setdefault(desk.place.uri, transaction.instant)
        self._move.wrote[desk.place.uri, self._group] = transaction.instant
        return transaction

    def stage(self, transaction: Transaction, kept: LostFiles | None) -> StagedFiles:
        stat = self._desk.add_file(transaction, self._group, self._content)
        metadata = CommitMetadata((stat,), "UPSERT", {WRITER_KEY: self._desk.name})
        return cast(StagedFiles, _Files(transaction, metadata))


class _Files:
    """Stands where the staged files of a write with rows stand."""

    may_become_logs = False
    reports: tuple[FileReport, ...] = ()

    def __init__(self, transaction: Transaction, metadata: CommitMetadata) -> None:
        self.transaction, self._metadata = transaction, metadata

    def seen_in(self, storage: Storage) -> CommitMetadata:
        if self.transaction.own_files is not None:
            self.transaction.own_files.place()
        return self._metadata

    def start(self, commit: Commit, keep_files: bool = False, part: Part[Commit] | None = None) -> Commit:
        staged = Staged(self._metadata, Work.of(self._metadata))
        return commit.start(self.transaction, staged, in_order(), part=part)


def balances_of(place: Place, times: Mapping[str, str]) -> dict[str, int]:
    """The balance of each account of a table, by the completion times of the writes that are seen."""
    newest: dict[str, tuple[str, int]] = {}
    for name in place.memory.list("").files:
        account, time = name.partition("_")[0], times.get(instant_of(name))
        if time is not None and account in ACCOUNTS and time > newest.get(account, ("", 0))[0]:
            content = place.memory.read(name)
            if content:
                newest[account] = time, int(json.loads(content)["balance"])
    return {account: balance for account, (_, balance) in newest.items()}


def _completed_now(place: Place) -> list[Any]:
    """What has completed in a table, at no time and without a fault."""
    return Actor.completed_in(place.memory)
