"""The product, driven in this process: every operation of a write, all services and the past, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from option_space import Layout
from table import write_arrow

import lakelatch
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.run.executor import HERE
from lakelatch.engine.run.report import FAILED
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.services.keeping.maintenance import maintain_with
from lakelatch.engine.services.rewrites.clustering import Clustering
from lakelatch.engine.services.rewrites.compaction import Compaction
from lakelatch.engine.services.rewrites.log_compaction import LogCompaction
from lakelatch.engine.services.service import ServiceContext
from lakelatch.engine.table.manager import table_at_rest
from lakelatch.system import REAL_SYSTEM

OPERATION = "hoodie.datasource.write.operation"
UNSAFE = "\"#%'*/:=?\\{[]^"
NO_FOLDER = "__HIVE_DEFAULT_PARTITION__"


@dataclass
class Engine:
    """One table at a path, with the options of its writers."""

    path: str
    options: dict[str, str]

    def write(self, operation: str, data: pa.Table, more: Mapping[str, str]) -> CommitResult:
        by_tasks = operation in ("insert", "bulk_insert")
        options = {**self.options, **more, OPERATION: operation}
        return self._checked(write_arrow(self.path, data, options, by_tasks))

    def drop(self, folder: str) -> CommitResult:
        return self._checked(lakelatch.delete_partitions(self.path, folder, self.options))

    def folder_of(self, place: tuple[Any, ...], layout: Layout) -> str:
        """The folder of these values, whatever characters are in it."""
        levels = []
        for name, value in zip(layout.folders, place, strict=True):
            text = NO_FOLDER if value is None else str(value)
            if "encoded" in layout["folders"]:
                text = "".join(f"%{ord(one):02X}" if one in UNSAFE else one for one in text)
            levels.append(f"{name}={text}" if "hive" in layout["folders"] else text)
        return "/".join(levels)

    def compact(self, more: Mapping[str, str]) -> bool:
        with table_at_rest(self.path, {**self.options, **more}, REAL_SYSTEM) as (table, manager, parsed):
            plan = Compaction(parsed.compaction, parsed.cancellation).schedule(ServiceContext(table, manager))
            if plan is not None:
                Compaction().execute(ServiceContext(table, manager), plan)
        return plan is not None

    def compact_logs(self) -> bool:
        options = {**self.options, "hoodie.log.compaction.blocks.threshold": "2"}
        with table_at_rest(self.path, options, REAL_SYSTEM) as (table, manager, parsed):
            plan = LogCompaction(parsed.compaction).schedule(ServiceContext(table, manager))
            if plan is not None:
                LogCompaction().execute(ServiceContext(table, manager), plan)
        return plan is not None

    def cluster(self, columns: list[str], layout: str) -> bool:
        named = {"hoodie.clustering.plan.strategy.sort.columns": ",".join(columns)}
        options = {**self.options, **named, "hoodie.layout.optimize.strategy": layout}
        with table_at_rest(self.path, options, REAL_SYSTEM) as (table, manager, parsed):
            plan = Clustering(parsed.clustering, parsed.cancellation).schedule(ServiceContext(table, manager))
            return plan is not None and Clustering().execute_or_leave(ServiceContext(table, manager), plan) is not None

    def maintain(self) -> None:
        report = maintain_with(HERE, self.path, Call(self.options).services())
        assert report.ok, report.failed

    def clean(self) -> bool:
        return bool(lakelatch.clean(self.path, self.options))

    def archive(self) -> bool:
        return bool(lakelatch.archive(self.path, self.options).instants)

    def savepoint(self, instant: str) -> str:
        return lakelatch.savepoint(self.path, instant, options=self.options).instant

    def delete_savepoint(self, instant: str) -> None:
        lakelatch.delete_savepoint(self.path, instant, self.options)

    def restore(self, instant: str) -> None:
        lakelatch.restore(self.path, instant, self.options)

    def roll_back(self, instant: str) -> None:
        lakelatch.roll_back(self.path, instant, self.options)

    def _checked(self, result: CommitResult) -> CommitResult:
        failed = [run for run in result.services if run.outcome == FAILED]
        assert not failed, failed
        return result
