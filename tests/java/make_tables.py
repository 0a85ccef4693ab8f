"""Makes the tables in `tests/data/java` with Java Hudi, and notes what Java and hudi-rs read from them.

Run it by `.venv/bin/python tests/java/make_tables.py [NAME...]` after `.ci/install-java-hudi`. Each table is a zip, and
a JSON file of the same name beside it: the version that wrote it, the rows that Java reads, and where hudi-rs reads
others, what it reads or says.
"""

from __future__ import annotations

import json
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import pyarrow as pa
from hudi import HudiTableBuilder
from java_hudi import NON_BLOCKING, ORDERED, SHARED, JavaHudi, JavaHudiError, Rows, plain, table_of

TARGET = Path(__file__).parents[1] / "data" / "java"
COLUMNS = "id long, ts long, v string, part string"
SMALL = {"hoodie.index.bloom.num_entries": "10", "hoodie.bloom.index.filter.type": "SIMPLE"}
PARTITIONED = {"hoodie.datasource.write.partitionpath.field": "part"}
COPY_ON_WRITE = {"hoodie.datasource.write.table.type": "COPY_ON_WRITE"}
COMPACTING = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "2"}
ARCHIVING = {"hoodie.keep.min.commits": "3", "hoodie.keep.max.commits": "4", "hoodie.clean.commits.retained": "2"}
LOCKED = {"hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider"}
LOCAL_ZONE = {
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Duser.timezone=America/New_York"
}


class Maker:
    """Writes one table."""

    def __init__(self, java: JavaHudi, path: str, options: dict[str, str]) -> None:
        self.java, self.path = java, path
        self.options = {**SHARED, **ORDERED, **SMALL, **PARTITIONED, **options}

    def put(self, ids: range, ts: int, name: str, operation: str = "upsert", **more: str) -> None:
        rows = [(key, ts, f"{name}{key}", "pq"[key % 2]) for key in ids]
        options = {**self.options, "hoodie.datasource.write.operation": operation}
        self.java.write(self.path, table_of(COLUMNS, rows), options, **more)

    def call(self, procedure: str, **arguments: str | int) -> Rows:
        table = self.java.register(self.path)
        given = "".join(f", {name} => {value!r}" for name, value in arguments.items())
        return self.java.sql(f"call {procedure}(table => '{table}'{given})")

    def last(self) -> str:
        """The requested time of the last completed commit."""
        names = [file.name for file in (Path(self.path) / ".hoodie" / "timeline").glob("*_*commit")]
        return max(names).partition("_")[0]


def life(table: Maker) -> None:
    """Upserts, one of them older than what it meets, deletes, and a row that is older than its delete."""
    table.put(range(6), 10, "a")
    table.put(range(2, 8), 11, "b")
    table.put(range(3, 5), 5, "older")
    table.put(range(2), 20, "", "delete")
    table.put(range(1, 2), 15, "late")
    table.put(range(8, 10), 30, "c")


def long_life(table: Maker) -> None:
    """More commits than the active timeline keeps; most rows stand in the first ones only."""
    for step in range(10):
        table.put(range(step * 4, step * 4 + 4), 10 + step, f"s{step}-")
    table.put(range(2), 90, "", "delete")
    table.put(range(2, 4), 91, "last")


def cleaned(table: Maker) -> None:
    for step in range(4):
        table.put(range(6), 10 + step, f"s{step}-", **{name.replace(".", "__"): "1" for name in COMPACTING})
        table.call("run_compaction", op="run")
    table.call("run_clean", retain_commits=1)
    table.put(range(3), 30, "last")


def rolled_back(table: Maker) -> None:
    life(table)
    table.put(range(20), 99, "undone")
    table.call("rollback_to_instant", instant_time=table.last())
    table.put(range(4, 6), 40, "after")
    rows = [(key, 98, f"dead{key}", "pq"[key % 2]) for key in range(8)]
    table.java.write_and_die(table.path, table_of(COLUMNS, rows), table.options, "*/*.log.*")


def killed_and_swept(table: Maker) -> None:
    rolled_back(table)
    table.put(range(9, 12), 41, "next")


def savepointed(table: Maker) -> None:
    life(table)
    table.call("create_savepoint", commit_time=table.last())
    table.put(range(4, 6), 40, "after")


def restored(table: Maker) -> None:
    savepointed(table)
    point = next((Path(table.path) / ".hoodie" / "timeline").glob("*.savepoint")).name.partition("_")[0]
    table.call("rollback_to_savepoint", instant_time=point)
    table.put(range(5, 7), 50, "again")


def clustered(table: Maker) -> None:
    life(table)
    table.call("run_clustering", op="schedule")
    table.call("run_clustering", op="execute")
    table.put(range(5, 7), 50, "again")


def clustered_and_more(table: Maker) -> None:
    clustered(table)
    long_life(table)


def overwritten(table: Maker) -> None:
    life(table)
    table.put(range(4, 8, 2), 1, "over", "insert_overwrite")
    table.put(range(0, 4, 2), 2, "and")
    table.put(range(1, 2), 1, "", "delete_partition", hoodie__datasource__write__partitions__to__delete="q")


def deleted_by_flag(table: Maker) -> None:
    """Rows that say of themselves that they are deleted; unlike deleted keys they have an ordering value."""
    columns = f"{COLUMNS}, _hoodie_is_deleted boolean"

    def put(ids: range, ts: int, name: str, deleted: bool) -> None:
        rows = [(key, ts, f"{name}{key}", "pq"[key % 2], deleted) for key in ids]
        table.java.write(table.path, table_of(columns, rows), table.options)

    put(range(6), 10, "a", False)
    put(range(2), 20, "", True)
    put(range(4, 6), 5, "", True)
    put(range(1), 15, "late", False)
    put(range(1, 2), 30, "newer", False)


def commit_time(table: Maker) -> None:
    for name in ORDERED:
        table.options.pop(name)
    table.options["hoodie.write.record.merge.mode"] = "COMMIT_TIME_ORDERING"
    life(table)


def log_blocks(kind: str) -> dict[str, str]:
    return {"hoodie.logfile.data.block.format": kind}


def without_partitions(table: Maker) -> None:
    table.options.pop("hoodie.datasource.write.partitionpath.field")
    life(table)


SIMPLE_INDEX = {"hoodie.index.type": "SIMPLE"}
TABLES: dict[str, tuple[Callable[[Maker], None], dict[str, str]]] = {
    "mor_avro_logs": (life, log_blocks("avro")),
    "mor_parquet_logs": (life, log_blocks("parquet")),
    "mor_v8": (life, {"hoodie.write.table.version": "8"}),
    "mor_v8_compacted": (life, {"hoodie.write.table.version": "8", **COMPACTING}),
    "mor_non_blocking": (life, {**NON_BLOCKING, **LOCKED}),
    "mor_without_partitions": (without_partitions, {}),
    "mor_hive_style": (life, {"hoodie.datasource.write.hive_style_partitioning": "true"}),
    "mor_commit_time": (commit_time, {}),
    "mor_deleted_by_flag": (deleted_by_flag, {}),
    "mor_deleted_by_flag_compacted": (deleted_by_flag, COMPACTING),
    "mor_compacted": (life, COMPACTING),
    "mor_archived": (long_life, ARCHIVING),
    "mor_v8_archived": (long_life, {"hoodie.write.table.version": "8", **ARCHIVING}),
    "mor_archived_compacted": (long_life, {**ARCHIVING, **COMPACTING}),
    "cow": (life, COPY_ON_WRITE),
    "cow_v8": (life, {**COPY_ON_WRITE, "hoodie.write.table.version": "8"}),
    "cow_archived": (long_life, {**COPY_ON_WRITE, **ARCHIVING}),
    "cow_clustered": (clustered, {**COPY_ON_WRITE, **SIMPLE_INDEX}),
    "cow_clustered_archived": (clustered_and_more, {**COPY_ON_WRITE, **SIMPLE_INDEX, **ARCHIVING}),
    "mor_clustered": (clustered, SIMPLE_INDEX),
    "mor_cleaned": (cleaned, {}),
    "mor_writer_killed": (rolled_back, {}),
    "mor_rolled_back": (killed_and_swept, {}),
    "mor_savepointed": (savepointed, {}),
    "mor_restored": (restored, {}),
    "mor_overwritten": (overwritten, {}),
    "cow_overwritten": (overwritten, COPY_ON_WRITE),
    "mor_metadata_table": (life, {"hoodie.metadata.enable": "true"}),
    "mor_local_time": (life, {"hoodie.table.timeline.timezone": "LOCAL"}),
}


def by_hudi_rs(path: str) -> Rows | str:
    """The rows, or why there are none."""
    try:
        batches = [pa.record_batch(batch) for batch in HudiTableBuilder.from_base_uri(path).build().read()]
    except Exception as error:
        return f"{type(error).__name__}: {error}".replace(path, "TABLE")[:500]
    return plain(pa.Table.from_batches(batches)) if batches else []


def pack(path: Path, name: str, notes: dict[str, Any]) -> None:
    TARGET.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(TARGET / f"{name}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for file in sorted(path.rglob("*")):
            if file.is_file() and not file.name.endswith(".crc"):
                archive.write(file, Path(name) / file.relative_to(path))
    (TARGET / f"{name}.json").write_text(json.dumps(notes, indent=1, ensure_ascii=False) + "\n")


def make(java: JavaHudi, folder: Path, name: str) -> None:
    how, options = TABLES[name]
    path = folder / name
    how(Maker(java, str(path), options))
    rows, others = java.read(str(path)), by_hudi_rs(str(path))
    notes: dict[str, Any] = {"written by": java.version, "rows": rows}
    if others != rows:
        notes["hudi-rs"] = others
    pack(path, name, notes)
    print(
        name,
        len(rows),
        "rows;",
        "hudi-rs reads the same" if others == rows else f"hudi-rs differs: {others}"[:300],
        flush=True,
    )


def main(names: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="java-tables-") as scratch:
        folder = Path(scratch)
        for zone, settings in ((False, {}), (True, LOCAL_ZONE)):
            chosen = [name for name in names or TABLES if (name == "mor_local_time") == zone]
            if not chosen:
                continue
            java = JavaHudi(folder, settings=settings)
            try:
                for name in chosen:
                    try:
                        make(java, folder, name)
                    except JavaHudiError as error:
                        print(name, "could not be made:", error, flush=True)
            finally:
                java.close()


if __name__ == "__main__":
    main(sys.argv[1:])
