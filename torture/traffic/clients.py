"""The processes of a round: each repeats one kind of work, and records its calls and their answers."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from multiprocessing.connection import Connection
from random import Random  # noqa: TID251  (seeded by the run)
from typing import Any

from lakelatch import failpoints
from lakelatch.engine.options.table_services.compaction import CompactionOptions
from lakelatch.engine.options.table_services.inline import SERVICES_ENABLED
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.services.counters import pending_plans
from lakelatch.engine.services.rewrites.compaction import Compaction
from lakelatch.engine.services.service import ServiceContext
from lakelatch.engine.table.table import OpenedTable
from lakelatch.errors import (
    CommitUnknown,
    CorruptTable,
    InvariantBroken,
    LakelatchError,
    TransactionEnded,
    WriteConflict,
)
from lakelatch.heartbeat.contract import HEARTBEAT_INTERVAL_OPTION, HEARTBEAT_MISSES_OPTION
from lakelatch.spark.session.local_session import open_session
from lakelatch.spark.write.frames_in import write
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.testing.servers.reach import AWS_ENVIRONMENT
from lakelatch.timeline.actions import CLEAN, COMPACTION, ROLLBACK, WRITE_ACTIONS
from lakelatch.timeline.log.whole_timeline import WholeTimeline
from lakelatch.torture.history.recorder import Recorder
from lakelatch.torture.settings import OF_SEVERAL, Place
from lakelatch.torture.traffic.bank import (
    ACCOUNTS,
    JOURNAL,
    OPTIONS,
    count_everything,
    entries,
    open_bank,
    put,
    read_accounts,
    transferred,
)
from lakelatch.torture.traffic.client_faults import ShiftedSystem
from lakelatch.torture.traffic.desk import Desk, heartbeat_of
from lakelatch.torture.traffic.moving import cut, move
from lakelatch.torture.traffic.services import cancel, serve
from lakelatch.transactions.base.settings import (
    MODE_OPTION,
    NON_BLOCKING,
    OPTIMISTIC,
    WRITER_NAME_OPTION,
)
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.transaction import Transaction

_SPARK_ROWS = 2000
_DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_LOGS_UNTIL_COMPACTION = 12
_PLANS_WAIT_S = 0.5
_FOLLOWED = (*WRITE_ACTIONS, CLEAN, ROLLBACK)


Attempt = Callable[[OpenedTable, Transaction, Any, str], CommitResult]


@dataclass(frozen=True)
class Name:
    """One process: its role, its number in that role, and how often it has been begun anew."""

    role: str
    number: int
    incarnation: int = 1

    @property
    def client(self) -> str:
        return f"{self.role}-{self.number}"

    def __str__(self) -> str:
        return f"{self.client}.{self.incarnation}"


@dataclass
class Answer:
    """The answer to one attempt at a work: it failed, unless the attempt says something else."""

    outcome: str = "failed"
    instant: str = ""
    completion: str = ""
    rows: int = 0
    error: str = ""
    parts: dict[int, dict[str, Any]] = field(default_factory=dict)  # what is told of each table, where they are several


class Client:
    """The parts that every role needs: tables and a clock into which faults are injected, and a history."""

    def __init__(self, name: Name, place: Place, options: dict[str, str], orders: Connection) -> None:
        self.name, self.place = name, place.at((name.number - 1) % place.tables)
        self.options = {**self.place.more_options, **options}
        self._orders, self._telling = orders, threading.Lock()
        self.system = ShiftedSystem()
        self.recorder = Recorder(place.history / f"{name}.jsonl")
        self.random = Random(f"{place.seed} {name}")
        self.finishing = threading.Event()
        self.works = 0
        self.desks = [Desk(self, each) for each in place.all_tables]
        self._desk = self.desks[self.place.number]
        self.storage = self._desk.storage

    def manager(self, mode: str) -> TransactionManager:
        """The transaction manager of this client, at its own table, and of this mode, opened once."""
        return self._desk.manager(mode)

    def open_table(self, uri: str) -> Storage:
        """The storage of any table of the round, as this client reaches it."""
        return next(desk.storage for desk in self.desks if desk.storage.uri == uri)

    def close(self) -> None:
        for desk in self.desks:
            desk.close()

    def obey(self, order: dict[str, Any]) -> None:
        """Executes an order of the run while it works."""
        kind, values = order["order"], order.get("values", {})
        if kind == "finish":
            self.finishing.set()
        elif kind == "storage":
            for desk in self.desks if "table" not in order else [self.desks[order["table"]]]:
                desk.faults.change(**values)
        elif kind == "clock":
            self.system.set_clock(**values)
        elif kind == "fork":
            self._desk.fork_next()
        elif kind == "failpoint":
            failpoints.turn_on(order["text"], lambda name, action: self._hit(name, action))
        else:
            raise InvariantBroken(f"this client does not know the order {kind!r}")

    def _hit(self, name: str, action: str) -> None:
        self.recorder.note("hit", failpoint=name, action=action)
        self.tell_run({"failpoint": name, "action": action})

    def tell_run(self, what: dict[str, str]) -> None:
        with self._telling, suppress(OSError):
            self._orders.send(what)

    # -- work -------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Works until it is ordered to finish; what it began is resolved first."""
        services = {
            "serve": lambda: serve(self),
            "cancel": lambda: cancel(self),
            "move": lambda: move(self),
            "cut": lambda: cut(self),
        }
        work = services.get(self.name.role) or getattr(self, self.name.role)
        while not self.finishing.is_set():
            work()
        self.recorder.note("finished")

    def next_work(self) -> str:
        """The name of the work that it begins now."""
        self.works += 1
        return f"{self.name}.{self.works:04d}"

    def transfer(self) -> None:
        """Reads two accounts and writes both: wrong as soon as another client's transfer comes in between."""
        giver, taker = self.random.sample(ACCOUNTS, 2)
        amount = self.random.randrange(1, 100)

        def attempt(table: OpenedTable, transaction: Transaction, options: Any, work: str) -> CommitResult:
            rows = transferred(read_accounts(table, (giver, taker)), giver, taker, amount, work)
            return put(transaction, table, options, rows)

        self._until_resolved(OPTIMISTIC, attempt)

    def append(self) -> None:
        """Adds entries to the journal, which conflict with nothing."""
        count = self.random.choice((1, 1, 1, 20))

        def attempt(table: OpenedTable, transaction: Transaction, options: Any, work: str) -> CommitResult:
            return put(transaction, table, options, entries(work, count))

        self._until_resolved(NON_BLOCKING, attempt, count)

    def _until_resolved(self, mode: str, attempt: Attempt, count: int = 0) -> None:
        work = self.next_work()
        while self._tried(mode, attempt, work, count) and not self.finishing.is_set():
            self.system.sleep(0.01 + 0.05 * self.random.random())

    def _tried(self, mode: str, attempt: Attempt, work: str, count: int) -> bool:
        """Makes one attempt; returns whether another one would be right."""
        with self.asked(work, WriteConflict, TransactionEnded, entries=count) as answer:
            manager = self.manager(mode)
            manager.recover()
            table, options = open_bank(self.storage, mode)
            transaction = manager.begin()
            answer.instant = transaction.instant
            self.recorder.note("begun", work=work, instant=transaction.instant)
            try:
                result = attempt(table, transaction, options, work)
            except CommitUnknown:
                raise
            except LakelatchError:
                with suppress(LakelatchError):  # what cannot be rolled back now is the next writer's to see to
                    transaction.abort()
                raise
            answer.outcome, answer.completion, answer.rows = "committed", result.completion, result.rows_written
        return answer.outcome in ("failed", "refused")

    @contextmanager
    def asked(
        self,
        work: str,
        *refusals: type[LakelatchError],
        kind: str = "",
        entries: int = 0,
        tables: Sequence[int] = (),
    ) -> Iterator[Answer]:
        """Notes that a work is begun, and the answer: as the block leaves it, or as the error that ends the block.

        `tables` are the numbers of those that it writes, where these are several.
        """
        of_tables = {"tables": list(tables)} if tables else {}
        self.recorder.note("call", work=work, role=self.name.role, kind=kind, entries=entries, **of_tables)
        answer = Answer()
        try:
            yield answer
        except CommitUnknown as error:
            answer.outcome, answer.error = "unknown", type(error).__name__
        except refusals as error:
            answer.outcome, answer.error = "refused", type(error).__name__
        except LakelatchError as error:
            answer.outcome, answer.error = "failed", self.allowed(error)
        self.recorder.note("return", work=work, kind=kind, **asdict(answer), **of_tables)

    def allowed(self, error: LakelatchError) -> str:
        """The error's name. Some kinds are errors of the product, whatever the nemesis does."""
        if isinstance(error, (CorruptTable, InvariantBroken)):
            self.recorder.note("broken", what=f"{type(error).__name__}: {error.message}")
        return type(error).__name__

    def compact(self) -> None:
        """Schedules a compaction, or executes a plan of any client."""
        kind = self.random.choice(("plan", "execute"))
        with self.asked(self.next_work(), kind=kind) as answer:
            manager = self.manager(NON_BLOCKING)
            manager.recover()
            table, _ = open_bank(self.storage, NON_BLOCKING)
            service = Compaction(CompactionOptions(_LOGS_UNTIL_COMPACTION))
            context = ServiceContext(table, manager)
            if kind == "plan":
                found = service.schedule(context)
                answer.outcome, answer.instant = "committed" if found else "refused", found or ""
            else:
                manager.context.snapshots.take()
                plans = pending_plans(manager.snapshot, COMPACTION)
                answer.outcome = "refused"
                if plans:
                    answer.instant = self.random.choice(plans)
                    result = service.execute(context, answer.instant)
                    answer.outcome, answer.completion = "committed", result.completion
        self.system.sleep(_PLANS_WAIT_S * self.random.random())

    def spark(self) -> None:
        """Appends through Spark: a session of its own, and `lakelatch.write` as a job calls it."""
        work = self.next_work()
        session = open_session("lakelatch torture", memory_mb=700)
        rows = session.range(_SPARK_ROWS).selectExpr(
            f"concat('{work}/', id) as key",
            "1L as version",
            "0L as balance",
            f"'{work}' as work",
            f"'{JOURNAL}' as kind",
        )
        options = {
            **OPTIONS,
            **self.options,
            MODE_OPTION: NON_BLOCKING,
            HEARTBEAT_INTERVAL_OPTION: heartbeat_of(self.place.lease_s).interval_ms,
            HEARTBEAT_MISSES_OPTION: heartbeat_of(self.place.lease_s).tolerable_misses,
            WRITER_NAME_OPTION: str(self.name),
            SERVICES_ENABLED: "false",  # other clients keep the table, and what they remove
        }
        with self.asked(work, entries=_SPARK_ROWS) as answer:
            result = write(rows, self.place.table_uri, options, self.system)
            answer.outcome, answer.rows = "committed", _SPARK_ROWS
            answer.instant, answer.completion = result.instant, result.completion

    # -- readers ----------------------------------------------------------------------------------------------------

    def tail(self) -> None:
        """Follows the table by completion time, as an incremental reader does; reads once more at the end."""
        seen: set[str] = set()
        while True:
            last = self.finishing.is_set()
            try:
                whole = WholeTimeline.load(self.storage)
                completed = whole.completed(_FOLLOWED)
                fresh = [found for found in completed if found.file_name not in seen]
                if fresh:
                    contents = {found.file_name: whole.content(found) for found in fresh}
                    shortened = {name: sha256(data).hexdigest()[:16] for name, data in contents.items()}
                    self.recorder.note("seen", files=[found.file_name for found in fresh], sha=shortened)
                    seen.update(found.file_name for found in fresh)
                if last:
                    return
            except LakelatchError as error:
                self.allowed(error)
            self.system.sleep(0.05 * self.random.random())

    def snapshot(self) -> None:
        """Reads the whole table, again and again."""
        try:
            table, _ = open_bank(self.storage, NON_BLOCKING)
            accounts, found = count_everything(table)
            self.recorder.note("snapshot", accounts=accounts, entries=found)
        except NotFound as error:
            self.recorder.note("missing", path=error.details.get("path", ""))
        except LakelatchError as error:
            self.allowed(error)
        self.system.sleep(0.3 * self.random.random())


def be_client(name: Name, place: Place, options: dict[str, str], orders: Connection) -> None:
    """The main function of a client's process, which ends with the run at the latest."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run sees to it
    ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL)  # also while it is stopped
    place.logs.mkdir(exist_ok=True)
    with open(place.logs / f"{name}.out", "ab") as out:  # of whatever it starts, as Spark
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    logging.basicConfig(filename=place.logs / f"{name}.log", format="%(asctime)s %(message)s", level=logging.INFO)
    client = Client(name, place, options, orders)
    about = {"client": name.client, "incarnation": name.incarnation, "role": name.role, "pid": os.getpid()}
    client.recorder.note("started", **about, table=None if name.role in OF_SEVERAL else client.place.number)

    def listen() -> None:
        while True:
            try:
                client.obey(orders.recv())
            except (EOFError, OSError):
                os._exit(3)

    for key, value in AWS_ENVIRONMENT.items():
        os.environ.setdefault(key, value)
    threading.Thread(target=listen, name="orders", daemon=True).start()
    try:
        client.run()
    finally:
        client.close()
