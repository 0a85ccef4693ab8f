"""What the demo does: its settings, the table's options, and the folders that its processes share."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from lakelatch.transactions.settings import NON_BLOCKING, OPTIMISTIC

KEY_FIELDS = ("year", "month", "day", "hour", "carrier", "flight")
ORDERING_FIELD = "event_time"
PARTITION_FIELD = "origin"
TIMETABLE, ACTUALS, COMPACTOR = "timetable", "actuals", "compactor"
FEEDS = (TIMETABLE, ACTUALS)
MODES = {"nbcc": NON_BLOCKING, "occ": OPTIMISTIC}


@dataclass(frozen=True)
class DemoPlan:
    """Settings of one run. Passed to the other processes as JSON; `extra` are write options, as of the locks."""

    folder: str
    mode: str = "nbcc"
    commits: int = 6
    buckets: int = 2
    rows: int | None = None
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        return Path(self.folder)

    @property
    def table(self) -> Path:
        return self.root / "flights"

    @property
    def replay(self) -> Path:
        return self.root / "replay"

    @property
    def pictures(self) -> tuple[Path, ...]:
        return tuple(self.root / f"timeline-{self.mode}.{suffix}" for suffix in ("svg", "png"))

    def input_file(self, feed: str, batch: int) -> Path:
        return self.root / "input" / feed / f"batch-{batch:02d}.parquet"

    def events_file(self, worker: str) -> Path:
        return self.root / "events" / f"{worker}.jsonl"

    def log_file(self, worker: str) -> Path:
        return self.root / "events" / f"{worker}.log"

    def options(self, worker: str) -> dict[str, object]:
        """The write options: exactly what a user would give."""
        return {
            "hoodie.table.name": "flights",
            "hoodie.datasource.write.recordkey.field": ",".join(KEY_FIELDS),
            "hoodie.datasource.write.partitionpath.field": PARTITION_FIELD,
            "hoodie.datasource.write.precombine.field": ORDERING_FIELD,
            "hoodie.bucket.index.num.buckets": self.buckets,
            "hoodie.write.concurrency.mode": MODES[self.mode],
            "hoodie.write.num.retries.on.conflict.failures": 200,
            "lakelatch.writer.name": worker,
            **self.extra,
        }

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> DemoPlan:
        return cls(**json.loads(text))
