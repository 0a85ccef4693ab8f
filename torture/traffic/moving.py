"""The clients that work on all tables of a round: they move amounts in one transaction, or look at one moment."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from lakelatch.engine.options.write import WriteOptions
from lakelatch.engine.run.executor import HERE
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.several.cut import take_cut
from lakelatch.engine.several.resolving import resolve
from lakelatch.engine.several.transaction import SERIALIZABLE, SNAPSHOT, TablesTransaction
from lakelatch.engine.table.table import OpenedTable
from lakelatch.engine.write.attempt import Write
from lakelatch.engine.write.commit import StagedFiles
from lakelatch.engine.write.rebase import LostFiles
from lakelatch.errors import CommitUnknown, LakelatchError, TransactionEnded, WriteConflict
from lakelatch.storage.contract import NotFound
from lakelatch.torture.traffic.bank import PURSES, Row, open_bank, read_purses, write_files
from lakelatch.transactions.base.settings import OPTIMISTIC
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.transaction import Transaction

if TYPE_CHECKING:
    from lakelatch.torture.traffic.clients import Answer, Client
    from lakelatch.torture.traffic.desk import Desk

_OF_A_TABLE = ("purse-0", "purse-1", "purse-2")
_SERIALIZABLE_RATE = 0.4
_READS_MORE_RATE = 0.5
_RESOLVE_AFTER_S = 0.5


@dataclass
class Moving:
    """One try at a move: what it has read and writes, by the numbers of tables. A version is named by its work."""

    work: str
    isolation: str
    began_ns: int
    reads: list[tuple[int, str, str]] = field(default_factory=list)  # table, purse, work
    writes: list[tuple[int, str]] = field(default_factory=list)
    instants: dict[int, str] = field(default_factory=dict)


def move(client: Client) -> None:
    """Reads purses of two or more tables at one moment, and moves amounts between them."""
    work = client.next_work()
    count = client.random.choice((2, 2, len(client.desks)))
    chosen = client.random.sample(range(len(client.desks)), count)
    while _tried(client, work, chosen) and not client.finishing.is_set():
        client.system.sleep(0.02 + 0.1 * client.random.random())


def _tried(client: Client, work: str, chosen: Sequence[int]) -> bool:
    """Makes one attempt; returns whether another one would be right."""
    draw = client.random
    isolation = SERIALIZABLE if draw.random() < _SERIALIZABLE_RATE else SNAPSHOT
    others = [number for number in range(len(client.desks)) if number not in chosen]
    only_read = others if draw.random() < _READS_MORE_RATE else []
    moving = Moving(work, isolation, client.system.monotonic_ns())
    with client.asked(work, WriteConflict, TransactionEnded, tables=chosen) as answer:
        try:
            _move(client, moving, chosen, only_read, answer)
        except CommitUnknown as error:
            _resolve(client, moving, error)
            raise
        finally:
            for number, instant in moving.instants.items():
                answer.parts.setdefault(number, {"instant": instant})
    return answer.outcome in ("failed", "refused")


def _move(client: Client, moving: Moving, chosen: Sequence[int], only_read: Sequence[int], answer: Answer) -> None:
    draw = client.random
    amounts = [draw.randrange(1, 100) for _ in chosen[1:]]
    changes = [-sum(amounts), *amounts]
    with _Transaction(client, moving.isolation) as transaction:
        for number in only_read:
            _read(client, transaction, moving, number, _OF_A_TABLE[0])
        rows: dict[int, Row] = {}
        for number, change in zip(chosen, changes, strict=True):
            purse = draw.choice(_OF_A_TABLE)
            version, balance = _read(client, transaction, moving, number, purse)
            rows[number] = (purse, version + 1, balance + change, moving.work, PURSES)
        for number, row in rows.items():
            moving.writes.append((number, row[0]))
            uri = client.desks[number].storage.uri
            transaction.start(uri, partial(_write, client.desks[number], moving, row))
        transaction.await_staged()
        client.recorder.note("moving", **asdict(moving))  # before anything of it can be committed
    for number in chosen:
        result = transaction.results[client.desks[number].storage.uri]
        told = {"instant": result.instant, "completion": result.completion, "rows": result.rows_written}
        answer.parts[number] = told
    answer.outcome = "committed"


def _read(client: Client, transaction: TablesTransaction, moving: Moving, number: int, purse: str) -> tuple[int, int]:
    storage = client.desks[number].storage
    table, _ = open_bank(storage, OPTIMISTIC)
    found = read_purses(table, transaction.moment_of(storage.uri), [purse])
    version, balance, work = found.get(purse, (0, 0, ""))
    moving.reads.append((number, purse, work))
    return version, balance


def _write(desk: Desk, moving: Moving, row: Row) -> CommitResult:
    """One table's part, in a thread of its own."""
    manager = desk.manager(OPTIMISTIC)
    manager.recover()
    table, options = open_bank(desk.storage, OPTIMISTIC)
    return _RowWrite(desk.place.number, manager, moving, table, options, row).committed()


def _resolve(client: Client, moving: Moving, error: CommitUnknown) -> None:
    """Asks until there is an answer, or the round ends."""
    while not client.finishing.is_set():
        try:
            found = resolve(error, system=client.system, open_table=client.open_table)
        except LakelatchError as problem:
            client.allowed(problem)
            client.system.sleep(_RESOLVE_AFTER_S)
        else:
            client.recorder.note("resolved", work=moving.work, committed=found)
            return


def cut(client: Client) -> None:
    """Takes one moment of all tables, and reads all purses of it."""
    began_ns = client.system.monotonic_ns()
    number = 0
    try:
        storages = {desk.storage.uri: desk.storage for desk in client.desks}
        moments = take_cut(storages, None, client.system, client.open_table)
        ended_ns = client.system.monotonic_ns()
        purses = {}
        for number, moment in enumerate(moments):
            table, _ = open_bank(client.desks[number].storage, OPTIMISTIC)
            purses[number] = read_purses(table, moment.time)
        times = {number: moment.time for number, moment in enumerate(moments)}
        client.recorder.note("moment", began_ns=began_ns, ended_ns=ended_ns, times=times, purses=purses)
    except NotFound as error:
        client.recorder.note("missing", path=error.details.get("path", ""), table=number)
    except LakelatchError as error:
        client.allowed(error)
    client.system.sleep(0.2 * client.random.random())


class _Transaction(TablesTransaction):
    """Over all tables of a client, whose own locks also hold what it only reads."""

    def __init__(self, client: Client, isolation: str) -> None:
        uris = [desk.storage.uri for desk in client.desks]
        super().__init__(uris, None, isolation, client.system, client.open_table)
        self._client = client

    def _manager_of(self, path: str) -> AbstractContextManager[TransactionManager]:
        return nullcontext(next(desk for desk in self._client.desks if desk.storage.uri == path).manager(OPTIMISTIC))


class _RowWrite(Write):
    """A write of one row."""

    def __init__(
        self,
        number: int,
        manager: TransactionManager,
        moving: Moving,
        table: OpenedTable,
        options: WriteOptions,
        row: Row,
    ) -> None:
        super().__init__(manager.context)
        self._number, self._manager, self._moving = number, manager, moving
        self._table, self._options, self._row = table, options, row

    def begin(self, kept: LostFiles | None) -> Transaction:
        transaction = self._manager.begin()
        self._moving.instants[self._number] = transaction.instant
        return transaction

    def stage(self, transaction: Transaction, kept: LostFiles | None) -> StagedFiles:
        reports = write_files(transaction, self._table, self._options, [self._row])
        return StagedFiles(transaction, self._table, self._options, reports, HERE)
