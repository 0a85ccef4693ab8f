"""The plan of the demo with `--writers`: many small writers without Spark, and one table."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from lakelatch.console.demo.plan import KEPT_WHOLE, MODES, DemoPlan

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("writer", pa.string())])
KEYS = ("id",)
ROWS = 10  # of each commit
PROCESSES_MOST = 16  # more writers than that share them, as threads


@dataclass(frozen=True)
class CrowdPlan(DemoPlan):
    """Settings of one run, which begins for all writers at once."""

    writers: int = 8
    seconds: float = 10.0

    @property
    def table(self) -> str:
        return self.place or str(self.root / "batches")

    @property
    def workers(self) -> tuple[str, ...]:
        """The names of the processes."""
        return tuple(f"process-{number}" for number in range(min(self.writers, PROCESSES_MOST)))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the writers."""
        return tuple(f"writer {number}" for number in range(1, self.writers + 1))

    def writers_of(self, process: str) -> tuple[str, ...]:
        """Those that run in one process."""
        return self.names[self.workers.index(process) :: len(self.workers)]

    @property
    def pictures(self) -> tuple[Path, ...]:
        return tuple(self.root / f"slots-{self.mode}.{suffix}" for suffix in ("svg", "png"))

    @property
    def begin_file(self) -> Path:
        """Says when all writers begin, once it is there."""
        return self.root / "events" / "begin"

    def options(self, worker: str) -> dict[str, object]:
        return {
            "hoodie.table.name": "batches",
            "hoodie.datasource.write.recordkey.field": ",".join(KEYS),
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.bucket.index.num.buckets": self.buckets,
            "hoodie.write.concurrency.mode": MODES[self.mode],
            "hoodie.write.num.retries.on.conflict.failures": 1000,
            "lakelatch.writer.name": worker,
            **KEPT_WHOLE,
            **self.extra,
        }

    @classmethod
    def from_json(cls, text: str) -> CrowdPlan:
        return cls(**json.loads(text))


def batch_rows(writer: str, batch: int) -> pa.Table:
    """The rows of one commit, with keys that no other one has."""
    ids = [f"{writer}, batch {batch}, row {row}" for row in range(ROWS)]
    return pa.table({"id": ids, "ts": [batch] * ROWS, "writer": [writer] * ROWS}, SCHEMA)
