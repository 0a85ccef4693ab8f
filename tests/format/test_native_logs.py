"""Tables of version 10, made by hand to Hudi's sources: logs that are parquet files, beside those of before."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelatch.engine.arrow import ArrowTable
from lakelatch.errors import CorruptTable, InvalidRequest
from lakelatch.format.avro import META_COLUMNS
from lakelatch.format.log.blocks import Deletes, encode_log_file
from lakelatch.storage import LocalStorage
from lakelatch.timeline.actions import DELTA_COMMIT
from lakelatch.timeline.instant import TIMELINE_FOLDER
from lakelatch.timeline.metadata import CommitMetadata, WriteStat
from lakelatch.timeline.properties_file import PROPERTIES_PATH
from lakelatch.timeline.table_config import EVENT_TIME, TableConfig

FILE_ID, TOKEN = "00000000-3a1e-4f4d-9d7a-b0b2c3d4e5f6-0", "0-12-34"
FIELDS = [("id", "string"), ("ts", "long"), ("v", "string")]
AVRO = json.dumps(
    {"type": "record", "name": "t", "fields": [{"name": one, "type": ["null", kind]} for one, kind in FIELDS]}
)
SCHEMA = pa.schema([(one, pa.string() if kind == "string" else pa.int64()) for one, kind in FIELDS])


def time_of(minute: int) -> str:
    return f"202611260900{minute:02d}000"


class MadeByHand:
    """A table without partitions, of which each write is one file or more of one file group."""

    def __init__(self, root: Path, **properties: str) -> None:
        self.storage = LocalStorage(str(root))
        config = TableConfig("t", ("id",), ordering_field="ts", merge_mode=EVENT_TIME, create_schema=AVRO)
        lines = [
            line
            for line in config.to_properties().decode().splitlines()
            if not line.startswith(("lakelatch.", "hoodie.table.version", "hoodie.bucket.index"))
        ]
        changed = {"hoodie.table.version": "10", **{key.replace("__", "."): value for key, value in properties.items()}}
        self.storage.put(PROPERTIES_PATH, "\n".join([*lines, *(f"{k}={v}" for k, v in changed.items())]).encode())

    def write(self, minute: int, files: dict[str, bytes]) -> None:
        instant, done = time_of(minute), time_of(minute + 1)
        stats = tuple(WriteStat("", FILE_ID, name, file_size_bytes=len(data)) for name, data in files.items())
        for name, data in files.items():
            self.storage.put(name, data)
        for state in (f"{instant}.deltacommit.requested", f"{instant}.deltacommit.inflight"):
            self.storage.put(f"{TIMELINE_FOLDER}/{state}", b"")
        metadata = CommitMetadata(stats, "UPSERT", {"schema": AVRO})
        self.storage.put(f"{TIMELINE_FOLDER}/{instant}_{done}.{DELTA_COMMIT}", metadata.to_avro())

    def read(self) -> list[tuple[Any, ...]]:
        rows = ArrowTable(self.storage.root).to_arrow().to_pylist()
        return sorted((row["id"], row["ts"], row["v"]) for row in rows)


def rows_of(minute: int, *rows: tuple[str, int, str]) -> pa.Table:
    meta = [[time_of(minute)] * len(rows), [f"{minute}_{at}" for at in range(len(rows))]]
    meta += [[row[0] for row in rows], [""] * len(rows), [""] * len(rows)]
    values = [list(column) for column in zip(*rows, strict=True)]
    return pa.table(dict(zip([*META_COLUMNS, *SCHEMA.names], [*meta, *values], strict=True)))


def parquet(table: pa.Table, headers: dict[str, str] | None = None, as_one: bool = False) -> bytes:
    """A file with these headers in its footer, each by itself, or all as one text as in Hudi's first draft."""
    found = {"VERSION": "2", "SCHEMA": AVRO} if headers is None else headers
    footer = {f"hudi.log.format.{key}": value for key, value in found.items()}
    sink = io.BytesIO()
    texts = {"hudi.log.format.metadata": json.dumps(found)} if as_one else footer
    pq.write_table(table.replace_schema_metadata(texts), sink)
    return sink.getvalue()


def log(minute: int, kind: str = "log.parquet", version: int = 1) -> str:
    return f"{FILE_ID}_{TOKEN}_{time_of(minute)}_{version}.{kind}"


def base(minute: int) -> str:
    return f"{FILE_ID}_{TOKEN}_{time_of(minute)}.parquet"


def deletes(*keys: tuple[str, int | None]) -> pa.Table:
    return pa.table(
        {"_hoodie_record_key": [key for key, _ in keys], "ts": pa.array([ts for _, ts in keys], pa.int64())}
    )


@pytest.fixture
def table(tmp_path: Path) -> MadeByHand:
    made = MadeByHand(tmp_path / "t")
    made.write(0, {base(0): parquet(rows_of(0, ("a", 5, "old"), ("b", 5, "old"), ("c", 5, "old")))})
    return made


@pytest.mark.parametrize("as_one", [False, True])
def test_rows_of_a_native_log_are_merged_as_those_of_any(table: MadeByHand, as_one: bool) -> None:
    table.write(2, {log(2): parquet(rows_of(2, ("a", 6, "new"), ("b", 4, "late"), ("d", 1, "new")), as_one=as_one)})
    assert table.read() == [("a", 6, "new"), ("b", 5, "old"), ("c", 5, "old"), ("d", 1, "new")]


@pytest.mark.parametrize("kind", ["deletes.parquet", "delete.parquet"])
def test_deletes_of_a_native_log_count_by_their_ordering_value(table: MadeByHand, kind: str) -> None:
    gone = parquet(deletes(("a", 6), ("b", 4), ("c", None)))
    table.write(2, {log(2): parquet(rows_of(2, ("e", 1, "new"))), log(2, kind): gone})
    assert table.read() == [("b", 5, "old"), ("e", 1, "new")]


KEY = "_hoodie_record_key"
NEW = rows_of(2, ("a", 6, "new"))


def headed(said: object) -> bytes:
    """A log of one row, whose headers are this in JSON."""
    sink = io.BytesIO()
    pq.write_table(NEW.replace_schema_metadata({"hudi.log.format.metadata": json.dumps(said)}), sink)
    return sink.getvalue()


def keyed(rows: pa.Table, keys: pa.Array) -> bytes:
    return parquet(rows.set_column(rows.column_names.index(KEY), KEY, keys))


def test_headers_in_json_may_be_numbers_and_truth_values(table: MadeByHand) -> None:
    said = {"VERSION": 2, "SCHEMA": AVRO, "INSTANT_TIME": int(time_of(2))}
    table.write(2, {log(2): headed({**said, "IS_PARTIAL": False})})
    assert table.read()[0] == ("a", 6, "new")
    table.write(4, {log(4): headed({"SCHEMA": AVRO, "IS_PARTIAL": True})})
    with pytest.raises(InvalidRequest, match="partial update by Hudi"):
        table.read()


@pytest.mark.parametrize("keys", [pa.array(["a"], pa.large_string()), pa.array(["a"]).dictionary_encode()])
def test_keys_may_be_texts_of_any_kind(table: MadeByHand, keys: pa.Array) -> None:
    table.write(2, {log(2): keyed(NEW, keys)})
    assert table.read()[0] == ("a", 6, "new")
    table.write(4, {log(4, "deletes.parquet"): keyed(deletes(("a", 7)), keys)})
    assert table.read() == [("b", 5, "old"), ("c", 5, "old")]


def test_a_slice_may_have_logs_of_both_kinds(table: MadeByHand) -> None:
    inline = encode_log_file(time_of(2), AVRO, rows_of(2, ("a", 6, "inline")), Deletes(pa.array(["c"]), "", None))
    table.write(2, {f".{FILE_ID}_{time_of(2)}.log.1_{TOKEN}": inline})
    table.write(4, {log(4): parquet(rows_of(4, ("a", 7, "native"), ("c", 1, "again")))})
    table.write(
        6, {log(6): parquet(rows_of(6, ("b", 6, "first"))), log(6, version=2): parquet(rows_of(6, ("b", 6, "2")))}
    )
    assert table.read() == [("a", 7, "native"), ("b", 6, "2"), ("c", 1, "again")]


def test_a_write_that_did_not_complete_is_not_read(table: MadeByHand) -> None:
    table.storage.put(log(2), parquet(rows_of(2, ("a", 6, "new"))))
    table.storage.put(f"{TIMELINE_FOLDER}/{time_of(2)}.deltacommit.inflight", b"")
    assert table.read() == [("a", 5, "old"), ("b", 5, "old"), ("c", 5, "old")]


@pytest.mark.parametrize(
    ("name", "data", "error", "says"),
    [
        (log(2), parquet(rows_of(2, ("a", 6, "v")), {"VERSION": "2"}), CorruptTable, "SCHEMA"),
        (log(2), parquet(rows_of(2, ("a", 6, "v")))[:-9], CorruptTable, "does not decode"),
        (log(2), parquet(rows_of(2, ("a", 6, "v")), {"VERSION": "3", "SCHEMA": AVRO}), InvalidRequest, "format 3"),
        (
            log(2),
            parquet(rows_of(2, ("a", 6, "v")), {"SCHEMA": AVRO, "COMPACTED_BLOCK_TIMES": time_of(0)}),
            InvalidRequest,
            "log compaction",
        ),
        (
            log(2),
            parquet(rows_of(2, ("a", 6, "")), {"SCHEMA": AVRO, "IS_PARTIAL": "true"}),
            InvalidRequest,
            "partial update by Hudi",
        ),
        (log(2, "log.orc"), b"ORC", InvalidRequest, "no parquet file"),
        *(
            (log(2), headed(said), CorruptTable, "does not decode")
            for said in (list[str](), 5, None, {"SCHEMA": AVRO, "VERSION": None})
        ),
        (log(2), headed({"SCHEMA": AVRO, "INSTANT_TIME": time_of(1)}), CorruptTable, f"instant {time_of(1)} by"),
        (log(2), parquet(NEW.append_column("v", pa.array(["twice"]))), CorruptTable, "the same name"),
        (log(2), keyed(NEW, pa.array([1])), CorruptTable, "keys are of type int64"),
        (log(2, "deletes.parquet"), keyed(deletes(("a", 6)), pa.array([1])), CorruptTable, "keys are of type int64"),
        (
            log(2, "deletes.parquet"),
            parquet(deletes(("a", 6)).rename_columns([KEY, "v"])),
            InvalidRequest,
            "orders deletes by v, and the table by ts",
        ),
        (log(2, "deletes.parquet"), parquet(pa.table({"ts": [1]})), CorruptTable, "without a record key"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(
    table: MadeByHand, name: str, data: bytes, error: type[Exception], says: str
) -> None:
    table.write(2, {name: data})
    with pytest.raises(error, match=says):
        table.read()


def test_such_a_table_is_not_written(table: MadeByHand) -> None:
    before = sorted(table.storage.walk(""))
    with pytest.raises(InvalidRequest, match=r"hoodie\.table\.version=10.*writes versions 8, 9"):
        ArrowTable(table.storage.root).upsert(pa.table({"id": ["a"], "ts": [9], "v": ["x"]}))
    with pytest.raises(InvalidRequest, match=r"hoodie\.table\.version=10"):
        ArrowTable(table.storage.root).maintain()
    assert sorted(table.storage.walk("")) == before


def test_another_layout_is_refused_by_name(tmp_path: Path) -> None:
    made = MadeByHand(tmp_path / "t", hoodie__table__storage__layout="lsm_tree")
    with pytest.raises(InvalidRequest, match=r"hoodie\.table\.storage\.layout=lsm_tree"):
        made.read()
