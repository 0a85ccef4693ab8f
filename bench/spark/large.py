"""A table of 100 million rows, nested columns too, on this machine: load, upsert, reads, compaction, and their memory.

Each step runs once, so times are no figures but those that stand beside a peer's: the load beside Spark's own sorted
write of the same rows, and reads beside those of its files. Memory is what was resident at most in any Python worker,
and in the Java process, which is driver and executor in one. LARGE_ROWS says how many rows there are (100,000,000),
LARGE_BUCKETS how many buckets (32), LARGE_FOLDER where: it needs some 15 GB for each 100 million rows.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.harness import Result, save, time_ms
from bench.spark.turns import sorted_by_key, spread
from pyspark.sql import DataFrame, SparkSession

import lakelatch
from lakelatch.spark.session.local_session import open_session
from lakelatch.system import REAL_SYSTEM

_ROWS = int(os.environ.get("LARGE_ROWS", "100000000"))
_BUCKETS = int(os.environ.get("LARGE_BUCKETS", "32"))
_FOLDER = os.environ.get("LARGE_FOLDER", "")
_UPDATED = 100  # one row in so many
_OPTIONS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.bucket.index.num.buckets": _BUCKETS,
    "hoodie.compact.inline.max.delta.commits": 1,
}


@dataclass
class _Memory:
    """The most bytes that a process of each kind has had."""

    peaks: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def watched(self) -> Iterator[None]:
        self.peaks, ended = {}, threading.Event()

        def watch() -> None:
            while not ended.is_set():
                for kind, resident in _resident():
                    self.peaks[kind] = max(self.peaks.get(kind, 0), resident)
                REAL_SYSTEM.sleep(0.2)

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def __str__(self) -> str:
        return ", ".join(f"{kind} {peak / 1e6:,.0f} MB" for kind, peak in sorted(self.peaks.items()))


def run() -> list[Result]:
    spark, memory = open_session("lakelatch bench", cores=2, memory_mb=4096), _Memory()
    results: list[Result] = []

    def step(name: str, action: Callable[[], object], peer: Callable[[], object] | None = None) -> None:
        peer_ms = None if peer is None else time_ms(peer)
        with memory.watched():
            took_ms = time_ms(action)
        speed = None if peer_ms is None else round(peer_ms / took_ms, 2)
        found = Result(
            f"large_{name}", round(took_ms), "ms", None, peer_ms and round(peer_ms), speed, "none", True, str(memory)
        )
        print(found, flush=True)
        results.append(found)

    with tempfile.TemporaryDirectory(dir=_FOLDER or Path.cwd(), prefix="bench-") as folder:
        table, plain = f"{folder}/table", f"{folder}/plain"
        source = _source(spark, f"{folder}/source")
        loading = {**_OPTIONS, "hoodie.datasource.write.operation": "bulk_insert"}
        ordered = sorted_by_key(source, _BUCKETS)
        step("load", lambda: lakelatch.write(source, table, loading), lambda: ordered.write.parquet(plain))
        _reads(step, "loaded", spark, table, plain)
        changed = source.where(f"pmod(xxhash64(id), {_UPDATED}) = 0").withColumn("ts", source.ts + 1)
        step("upsert", lambda: lakelatch.write(changed, table, _OPTIONS))
        shutil.rmtree(f"{folder}/source")
        _reads(step, "with_logs", spark, table, plain)
        step("compaction", lambda: lakelatch.compact(spark, table, _OPTIONS))
        _reads(step, "compacted", spark, table, plain)
    spark.stop()
    return results


def _source(spark: SparkSession, path: str) -> DataFrame:
    spark.range(_ROWS).selectExpr(
        f"format_string('key-%010d', {spread('id', _ROWS)}) AS id",
        "1L AS ts",
        "hash(id) AS v",
        "named_struct('city', concat('c', id % 1000), 'at', named_struct('x', id / 7, 'y', id / 11)) AS place",
        "transform(sequence(0, int(id % 3)), n -> int(id + n)) AS items",
        "map('a', id % 10, 'b', id % 13) AS marks",
    ).write.parquet(path)
    return spark.read.parquet(path)


def _reads(step: Callable[..., None], state: str, spark: SparkSession, table: str, plain: str) -> None:
    def total(frame: DataFrame) -> int:
        return int(frame.selectExpr("sum(CAST(v AS BIGINT)) + count(place.at.x) AS total").collect()[0].total)

    def scan(frame: DataFrame) -> None:
        frame.drop(*(name for name in frame.columns if name.startswith("_hoodie"))).write.format("noop").mode(
            "overwrite"
        ).save()

    def peer() -> DataFrame:
        return spark.read.parquet(plain)

    if lakelatch.read(spark, table).count() != _ROWS or total(lakelatch.read(spark, table)) != total(peer()):
        raise AssertionError(f"{state}: the table has other rows than the peer")
    named = {"columns": "v,place"}
    step(f"{state}_columns", lambda: total(lakelatch.read(spark, table, named)), lambda: total(peer()))
    step(f"{state}_scan", lambda: scan(lakelatch.read(spark, table)), lambda: scan(peer()))
    where = f"id = 'key-{_ROWS // 3:010d}'"
    step(
        f"{state}_lookup",
        lambda: lakelatch.read(spark, table, where=where).collect(),
        lambda: peer().where(where).collect(),
    )


def _resident() -> Iterator[tuple[str, int]]:
    """Of this process's descendants, the bytes of each and what it is."""
    parents, found = {}, {}
    for entry in Path("/proc").iterdir():
        try:
            number = int(entry.name)
            lines = (entry / "status").read_text().splitlines()
        except (ValueError, OSError):
            continue
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        parents[number] = int(status["PPid"])
        found[number] = status["Name"].strip(), int(status.get("VmRSS", "0 kB").split()[0]) * 1024
    for number, (name, resident) in found.items():
        above = parents[number]
        while above in parents and above != os.getpid():
            above = parents[above]
        if above == os.getpid():
            yield ("Java" if name == "java" else "a Python worker"), resident


if __name__ == "__main__":
    save(run())
