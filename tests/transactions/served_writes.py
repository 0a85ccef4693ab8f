"""Writers whose tasks announce through a real marker server, for tests."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from early_writes import GROUP
from one_table import Table

from lakelatch.storage import Storage
from lakelatch.testing.ports import free_port
from lakelatch.timeline.metadata import CommitMetadata, WriteStat
from lakelatch.transactions.base.outcome import Committed
from lakelatch.transactions.base.settings import (
    SERVER_MARKERS,
    EarlySettings,
    MarkerServerSettings,
)
from lakelatch.transactions.early.server_client import MARKERS_PATH, ServerAddress, session_name, signed_request
from lakelatch.transactions.early.task_files import TaskFiles
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.transaction import Transaction

HOST = "127.0.0.1"
PERIOD_MS = 10


def served_manager(
    table: Table,
    strategy: str | None = "timeline_server",
    storage: Storage | None = None,
    server: MarkerServerSettings | None = None,
    **early: Any,
) -> TransactionManager:
    """Without a strategy there is no early detection, and markers go through the server all the same."""
    detection = EarlySettings(strategy, period_ms=PERIOD_MS, marker_type=SERVER_MARKERS)
    found = replace(detection, **early) if strategy is not None else None
    return table.manager(storage=storage, early=found, marker_server=server or MarkerServerSettings())


@dataclass
class ServedWriter:
    """One write and its server; what its tasks do with both."""

    table: Table
    transaction: Transaction
    address: ServerAddress | None
    attempts: int = field(default=0)

    @property
    def instant(self) -> str:
        return self.transaction.instant

    @property
    def place(self) -> ServerAddress:
        assert self.address is not None
        return self.address

    def attempt(self) -> TaskFiles:
        self.attempts += 1
        name = f"{self.attempts}-0-{self.attempts}"
        early = self.transaction.early_detection()
        return TaskFiles(self.table.storage, self.instant, name, early, self.table.system, self.address)

    def name(self, group: str = GROUP) -> str:
        return f".{group}_{self.instant}.log.1_{self.attempts}-0-{self.attempts}"

    def write(self, group: str = GROUP, partition: str = "p") -> WriteStat:
        """A task attempt that writes one file of ten rows."""
        with self.attempt() as files:
            name = self.name(group)
            files.create(partition, name, b"rows", 10)
        return WriteStat(partition, group, f"{partition}/{name}" if partition else name)

    def commit(self, *stats: WriteStat) -> Committed:
        return self.transaction.commit(CommitMetadata(stats, "UPSERT"))

    def lines(self) -> list[str]:
        """All lines of all MARKERS files."""
        folder = f".hoodie/.temp/{self.instant}"
        names = [name for name in self.table.storage.list(folder).files if name[len("MARKERS") :].isdigit()]
        found = [self.table.storage.read(f"{folder}/{name}").decode().splitlines() for name in sorted(names)]
        return [line for lines in found for line in lines]


@contextmanager
def served(
    table: Table, strategy: str | None = "timeline_server", count: int = 1, **more: Any
) -> Iterator[list[ServedWriter]]:
    """That many writers, the first one requested first."""
    with ExitStack() as servers:
        writers = []
        for _ in range(count):
            transaction = served_manager(table, strategy, **more).begin()
            writers.append(ServedWriter(table, transaction, servers.enter_context(transaction.serve_markers(HOST))))
        yield writers


def authorization(token: str, text: str) -> str:
    """The header by which a request is signed."""
    return f"Lakelatch {session_name(token)}:{signed_request(token, text.encode())}"


def post(address: ServerAddress, body: Any, token: str | None = None) -> tuple[int, str]:
    """One request, as any program could send it."""
    connection = http.client.HTTPConnection(address.host, address.port, timeout=30)
    try:
        text = body if isinstance(body, str) else json.dumps(body)
        headers = {} if token == "" else {"Authorization": authorization(token or address.token, text)}
        connection.request("POST", MARKERS_PATH, text, headers)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def closed_port() -> int:
    """Where nobody listens."""
    return free_port()
