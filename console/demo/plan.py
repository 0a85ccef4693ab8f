"""The plan of the demo: its settings, the table's options, and the folders that its processes share."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from lakelatch.storage.contract import Storage
from lakelatch.storage.options import StorageOptions
from lakelatch.storage.uris import open_storage
from lakelatch.transactions.base.settings import NON_BLOCKING, OPTIMISTIC

KEY_FIELDS = ("year", "month", "day", "hour", "carrier", "flight")
ORDERING_FIELD = "event_time"
PARTITION_FIELD = "origin"
TIMETABLE, ACTUALS, COMPACTOR, KEEPER = "timetable", "actuals", "compactor", "keeper"
FEEDS = (TIMETABLE, ACTUALS)
SMALL = {  # of Hudi's numbers, so that there is something to see
    "hoodie.compact.inline.max.delta.commits": "3",
    "hoodie.clustering.inline.max.commits": "3",
    "hoodie.clustering.plan.strategy.sort.columns": "carrier,flight",
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "4",
    "hoodie.keep.max.commits": "6",
    "lakelatch.archive.minimum.age.seconds": "0",
}
# What was cleaned or archived after a commit could not be replayed.
KEPT_WHOLE = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
PLAN_VARIABLE = "LAKELATCH_DEMO_PLAN"  # by which a process of the demo is given its plan
MODES = {"nbcc": NON_BLOCKING, "occ": OPTIMISTIC}


@dataclass(frozen=True)
class DemoPlan:
    """Settings of one run. Passed to the other processes as JSON; `extra` are write options, such as those of locks.

    `place` is where the table goes, if not into the folder.
    """

    folder: str
    mode: str = "nbcc"
    commits: int = 6
    buckets: int = 2
    rows: int | None = None
    services: bool = False
    extra: dict[str, str] = field(default_factory=dict)
    place: str = ""

    @property
    def root(self) -> Path:
        return Path(self.folder)

    @property
    def third(self) -> str:
        """The name of the third process, which compacts, or maintains the table with all services."""
        return KEEPER if self.services else COMPACTOR

    @property
    def workers(self) -> tuple[str, ...]:
        return *FEEDS, self.third

    @property
    def table(self) -> str:
        return self.place or str(self.root / "flights")

    @property
    def storage(self) -> Storage:
        """Where the table is, reached as the write options say."""
        return open_storage(self.table, StorageOptions.from_options(self.extra))

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
        """The write options, exactly as a user would set them."""
        return {
            "hoodie.table.name": "flights",
            "hoodie.datasource.write.recordkey.field": ",".join(KEY_FIELDS),
            "hoodie.datasource.write.partitionpath.field": PARTITION_FIELD,
            "hoodie.datasource.write.precombine.field": ORDERING_FIELD,
            "hoodie.bucket.index.num.buckets": self.buckets,
            "hoodie.write.concurrency.mode": MODES[self.mode],
            "hoodie.write.num.retries.on.conflict.failures": 200,
            "lakelatch.writer.name": worker,
            **(SMALL if self.services else KEPT_WHOLE),
            **self.extra,
        }

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> DemoPlan:
        return cls(**json.loads(text))
