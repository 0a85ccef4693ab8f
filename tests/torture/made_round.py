"""A small round, made by hand with the product in this process: what a run leaves behind when nothing goes wrong."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakelatch.engine.options.compaction import CompactionOptions
from lakelatch.engine.options.write import WriteOptions
from lakelatch.engine.run.executor import HERE
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.services import compaction
from lakelatch.engine.table.making import open_for_write
from lakelatch.engine.table.opening import open_table
from lakelatch.engine.write.attempt import commit_files
from lakelatch.engine.write.commit import write_task
from lakelatch.locks.contract import TABLE_KEY, LockScope
from lakelatch.locks.filesystem.provider import FilesystemLockProvider
from lakelatch.timegen.hybrid import HybridTimeGenerator
from lakelatch.timeline.timeline import Timeline
from lakelatch.torture.traffic import bank
from lakelatch.torture.traffic.bank import SCHEMA, Row
from lakelatch.torture.traffic.keeping_storage import KeepingStorage
from lakelatch.transactions.base.settings import MODE_OPTION, NON_BLOCKING, TransactionSettings
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.transaction import Transaction

OPTIONS: dict[str, object] = {**bank.OPTIONS, "hoodie.bucket.index.num.buckets": 2, MODE_OPTION: NON_BLOCKING}
LEASE_S = 2.0
SECOND_NS = 1_000_000_000


class MadeRound:
    """Writes a table and tells of it, on a clock of its own on which every line is a tenth of a second."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.table = folder / "table"
        self.now_ns = SECOND_NS
        self.accounts: dict[str, tuple[int, int]] = {}
        self.entries = 0
        self.told: set[str] = set()
        self.tokens = 0
        (folder / "history").mkdir(parents=True, exist_ok=True)
        storage = KeepingStorage(str(self.table))
        self.options = WriteOptions.parse(OPTIONS)
        self.opened = open_for_write(storage, self.options, SCHEMA)
        provider = FilesystemLockProvider(LockScope(storage.uri, {}))
        settings = TransactionSettings(mode=NON_BLOCKING)
        generator = HybridTimeGenerator(provider)
        self.manager = TransactionManager(storage, provider, generator, settings, slots_kept=64)

    def note(self, process: str, event: str, **details: Any) -> int:
        self.now_ns += SECOND_NS // 10
        line = json.dumps({"at_ns": self.now_ns, "event": event, **details})
        with (self.folder / "history" / f"{process}.jsonl").open("a") as file:
            file.write(line + "\n")
        return self.now_ns

    def transfer(self, process: str, work: str, giver: str, taker: str, amount: int) -> CommitResult:
        rows = []
        for account, change in ((giver, -amount), (taker, amount)):
            version, balance = self.accounts.get(account, (0, 0))
            self.accounts[account] = (version + 1, balance + change)
            rows.append((account, version + 1, balance + change, work, "bank"))
        return self.write(process, work, "transfer", rows)

    def append(self, process: str, work: str, count: int) -> CommitResult:
        self.entries += count
        return self.write(process, work, "append", entries(work, count))

    def write(
        self, process: str, work: str, role: str, rows: Sequence[Row], outcome: str = "committed"
    ) -> CommitResult:
        """A whole transaction; an outcome of "unknown" is a commit whose caller never learned of it."""
        transaction = self.begin(process, work, role)
        result = self.commit(transaction, rows)
        told = outcome == "committed"
        self.answer(
            process, work, outcome, transaction.instant, result.completion if told else "", len(rows) if told else 0
        )
        return result

    def begin(self, process: str, work: str, role: str) -> Transaction:
        self.note(process, "call", work=work, role=role)
        transaction = self.manager.begin()
        self.note(process, "begun", work=work, instant=transaction.instant)
        return transaction

    def answer(
        self, process: str, work: str, outcome: str, instant: str, completion: str = "", rows: int = 0, error: str = ""
    ) -> None:
        values = {"instant": instant, "outcome": outcome, "completion": completion, "rows": rows, "error": error}
        self.note(process, "return", work=work, **values)

    def commit(self, transaction: Transaction, rows: Sequence[Row]) -> CommitResult:
        options = replace(self.options, block_format="avro" if self.entries % 2 else "parquet")
        return commit_files(transaction, self.opened, options, self.put(transaction, rows, options))

    def put(self, transaction: Transaction, rows: Sequence[Row], options: WriteOptions) -> list[Any]:
        """Writes rows as tasks do."""
        table = self.opened
        task = write_task(table, options, transaction)
        data = pa.Table.from_arrays([list(column) for column in zip(*rows, strict=True)], schema=SCHEMA)
        return [report for batch in data.to_batches() for report in task.write(iter([task.tag(batch)]), "0-0-0")]

    def refuse(self, process: str, work: str, role: str, rows: Sequence[Row]) -> None:
        """A write that has its files and is rolled back."""
        transaction = self.begin(process, work, role)
        self.put(transaction, rows, self.options)
        transaction.abort()
        self.answer(process, work, "refused", transaction.instant, error="WriteConflict")

    def compact(self, process: str, work: str, execute: bool = True) -> None:
        table = open_table(self.opened.storage)
        self.note(process, "call", work=f"{work}.plan", role="compact", kind="plan")
        plan = compaction.schedule(table, self.manager, CompactionOptions())
        assert plan is not None
        told = {"outcome": "committed", "instant": plan, "rows": 0, "error": ""}
        self.note(process, "return", work=f"{work}.plan", completion="", kind="plan", **told)
        if execute:
            self.note(process, "call", work=work, role="compact", kind="execute")
            done = compaction.execute(HERE, table, self.manager, plan)
            self.note(process, "return", work=work, completion=done.completion, kind="execute", **told)

    def look(self, process: str) -> None:
        """What a tail reader sees of what is new."""
        completed = sorted(Timeline.load(self.opened.storage).completed, key=lambda one: one.completion or "")
        files = [one.file_name for one in completed if one.file_name not in self.told]
        self.told.update(files)
        timeline = self.table / ".hoodie/timeline"
        digests = {name: hashlib.sha256((timeline / name).read_bytes()).hexdigest()[:16] for name in files}
        self.note(process, "seen", files=files, sha=digests)

    def snapshot(self, process: str) -> None:
        self.note(process, "snapshot", accounts=dict(self.accounts), entries=self.entries)

    def lease(self, process: str, key: str = TABLE_KEY) -> None:
        self.tokens += 1
        asked_ns = self.now_ns
        self.now_ns += SECOND_NS // 10
        self.note(
            process,
            "lease",
            key=key,
            token=self.tokens,
            asked_ns=asked_ns,
            granted_ns=asked_ns + 1,
            until_ns=self.now_ns - 1,
            valid=True,
        )

    def fault(self, number: int, kind: str, target: str) -> None:
        self.note("nemesis", "fault", fault=kind, target=target, id=number, detail="")
        self.now_ns += SECOND_NS
        self.note("nemesis", "heal", fault=kind, target=target, id=number, detail="")

    def close(self, **facts: Any) -> None:
        (self.folder / "round.json").write_text(json.dumps(facts))


def go_on(folder: Path) -> MadeRound:
    """A made round, to write more into its table."""
    made = MadeRound(folder)
    lines = (folder / "history/snapshot-1.1.jsonl").read_text().splitlines()
    last = [json.loads(line) for line in lines if '"snapshot"' in line][-1]
    made.accounts = {key: (version, balance) for key, (version, balance) in last["accounts"].items()}
    made.entries = last["entries"]
    made.now_ns = json.loads((folder / "round.json").read_text())["ended_ns"]
    return made


def make_round(run: Path) -> Path:
    """The folder of a sound round, in a run that is made around it."""
    (run / "run.json").write_text(
        json.dumps({"seed": 7, "providers": ["filesystem"], "lease_s": LEASE_S, "round_s": 10})
    )
    made = MadeRound(run / "rounds" / "0001-filesystem")
    for process, role in _processes():
        client, _, incarnation = process.rpartition(".")
        made.note(process, "started", client=client, incarnation=int(incarnation), role=role, pid=1)
    began_ns = made.note("nemesis", "begin")
    made.transfer("transfer-1.1", "transfer-1.1.0001", "account-0", "account-1", 10)
    made.lease("transfer-1.1")
    made.snapshot("snapshot-1.1")
    made.look("tail-1.1")
    made.append("append-1.1", "append-1.1.0001", 3)
    made.lease("append-1.1")
    made.fault(1, "paused", "transfer-1")
    made.transfer("transfer-1.1", "transfer-1.1.0002", "account-1", "account-2", 4)
    made.refuse("transfer-1.1", "transfer-1.1.0003", "transfer", [("account-0", 9, 9, "transfer-1.1.0003", "bank")])
    made.compact("compact-1.1", "compact-1.1.0001")
    made.look("tail-1.1")
    made.snapshot("snapshot-1.1")
    made.entries += 2
    made.write("append-1.1", "append-1.1.0002", "append", entries("append-1.1.0002", 2), "unknown")
    made.note("append-1.1", "hit", failpoint="commit.after_slot", action="raise")
    made.note("append-1.1", "call", work="append-1.1.0003", role="append")
    made.fault(2, "killed", "append-1")
    with (run / "rounds/0001-filesystem/history/append-1.1.jsonl").open("a") as file:
        file.write('{"at_ns": 1, "event": "beg')
    faults_ended_ns = made.now_ns
    healed_ns = made.note("nemesis", "calm")
    made.append("append-1.2", "append-1.2.0001", 2)
    made.transfer("transfer-1.1", "transfer-1.1.0004", "account-2", "account-0", 1)
    made.look("tail-1.1")
    made.compact("compact-1.1", "compact-1.1.0002")
    made.snapshot("snapshot-1.1")
    made.look("tail-1.1")
    for process, _ in _processes():
        if process != "append-1.1":
            made.note(process, "finished")
    made.close(
        provider="filesystem",
        seed=8,
        settings={"lease_s": LEASE_S},
        recovery_bound_s=LEASE_S,
        began_ns=began_ns,
        faults_ended_ns=faults_ended_ns,
        healed_ns=healed_ns,
        ended_ns=made.now_ns,
        problems=[],
    )
    return made.folder


def entries(work: str, count: int) -> list[Row]:
    return [(f"{work}/{number}", 1, 0, work, "journal") for number in range(count)]


def _processes() -> Iterable[tuple[str, str]]:
    names = ("transfer-1.1", "append-1.1", "append-1.2", "compact-1.1", "tail-1.1", "snapshot-1.1")
    return [(name, name.partition("-")[0]) for name in names]
