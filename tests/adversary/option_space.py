"""Which tables there are: one choice of each option, from a seed."""

from __future__ import annotations

import random  # noqa: TID251  (seeded)
from dataclasses import dataclass

MERGED, COPIED = "MERGE_ON_READ", "COPY_ON_WRITE"
OPTIMISTIC, NON_BLOCKING = "OPTIMISTIC_CONCURRENCY_CONTROL", "NON_BLOCKING_CONCURRENCY_CONTROL"
SPACE: dict[str, tuple[str, ...]] = {
    "type": (MERGED, COPIED),
    "version": ("8", "9"),
    "ordering": ("none", "long", "int", "double", "text", "timestamp", "commit_time"),
    "key": ("number", "text", "two"),
    "hash": ("whole", "part"),
    "partition": ("none", "one", "two"),
    "folders": ("plain", "hive", "encoded", "hive_encoded"),
    "buckets": ("1", "2", "5"),
    "concurrency": (OPTIMISTIC, NON_BLOCKING),
    "groups": ("none", "all", "some"),
    "codec": ("zstd", "snappy", "gzip", "uncompressed"),
    "early": ("false", "true"),
    "strategy": ("bucket", "simple", "prefer_writer"),
    "elision": ("auto", "off"),
    "locks": ("filesystem", "in_process"),
    "retained": ("100", "2"),
    "archiving": ("false", "true"),
    "memory": ("usual", "tiny"),  # what a merge holds of logs
    "cdc": ("false", "true"),
}
_RARE = {"type": (3, 1), "groups": (4, 1, 1), "retained": (2, 1), "early": (2, 1)}
ORDER_TYPES = {"int": "int", "double": "double", "text": "string", "timestamp": "timestamp"}


@dataclass(frozen=True)
class Layout:
    """One choice, which goes together."""

    choice: dict[str, str]

    @classmethod
    def of(cls, seed: int) -> Layout:
        chance = random.Random(f"layout {seed}")
        found = {name: chance.choices(values, _RARE.get(name))[0] for name, values in SPACE.items()}
        if found["type"] == COPIED:
            found.update(concurrency=OPTIMISTIC, groups="none")
        if found["groups"] != "none":
            found["ordering"] = "long" if found["groups"] == "some" else "none"
        elif found["ordering"] in ("none", "commit_time"):
            found["concurrency"] = OPTIMISTIC
        if found["concurrency"] == NON_BLOCKING:
            found["early"] = "false"
        if found["key"] != "two":
            found["hash"] = "whole"
        if found["partition"] == "none":
            found["folders"] = "plain"
        return cls(found)

    def __getitem__(self, name: str) -> str:
        return self.choice[name]

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the record key."""
        return {"number": ("id",), "text": ("name",), "two": ("id", "name")}[self["key"]]

    @property
    def folders(self) -> tuple[str, ...]:
        """The columns of the partition."""
        return {"none": (), "one": ("part",), "two": ("part", "day")}[self["partition"]]

    @property
    def order(self) -> str | None:
        """The ordering column whose values decide."""
        return None if self["ordering"] in ("none", "commit_time") else "ts"

    def columns(self) -> dict[str, str]:
        """The table's first columns, with their types as Spark calls them."""
        found = {"id": "long", "name": "string", "part": "string", "day": "int"}
        found["ts"] = ORDER_TYPES.get(self["ordering"], "long")
        found.update(n="int", v="string")
        if self["groups"] != "none":
            found.update(at="long", a="string", b="int", ct="long", c="string")
        if self["groups"] == "all":
            for name in ("ts", "n", "v"):
                del found[name]
            for name in {"id", "name", "part", "day"} - {*self.key, *self.folders}:
                del found[name]
        return found

    def options(self) -> dict[str, str]:
        """What a writer says of the table, and of its writes."""
        found = {
            "hoodie.datasource.write.recordkey.field": ",".join(self.key),
            "hoodie.datasource.write.table.type": self["type"],
            "hoodie.write.table.version": self["version"],
            "hoodie.bucket.index.num.buckets": self["buckets"],
            "hoodie.write.concurrency.mode": self["concurrency"],
            "hoodie.parquet.compression.codec": self["codec"],
            "hoodie.write.lock.provider": self["locks"],
            "hoodie.write.lock.conflict.resolution.strategy": self["strategy"],
            "hoodie.write.num.retries.on.conflict.failures": "5",
            "lakelatch.lock.elision": self["elision"],
            "hoodie.clean.commits.retained": self["retained"],
            "hoodie.archive.automatic": self["archiving"],
            "hoodie.keep.min.commits": "3",
            "hoodie.keep.max.commits": "5",
            "lakelatch.archive.minimum.age.seconds": "0",
            "hoodie.table.cdc.enabled": self["cdc"],
        }
        if self["ordering"] != "none":
            found["hoodie.datasource.write.precombine.field"] = "ts"
        if self["ordering"] == "commit_time":
            found["hoodie.record.merge.mode"] = "COMMIT_TIME_ORDERING"
        if self["hash"] == "part":
            found["hoodie.bucket.index.hash.field"] = "name"
        if self.folders:
            found["hoodie.datasource.write.partitionpath.field"] = ",".join(self.folders)
            found["hoodie.datasource.write.hive_style_partitioning"] = str("hive" in self["folders"]).lower()
            found["hoodie.datasource.write.partitionpath.urlencode"] = str("encoded" in self["folders"]).lower()
        if self["groups"] != "none":
            found["lakelatch.table.column.groups"] = "at: a, b; ct: c"
        if self["early"] == "true":  # who has lost waits for a winner that may be in its own thread
            found["hoodie.write.concurrency.early.conflict.detection.enable"] = "true"
            found.update(
                {"hoodie.write.num.retries.on.conflict.failures": "1", "hoodie.write.lock.wait_time_ms": "100"}
            )
        return found
