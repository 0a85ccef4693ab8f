"""Tables as other engines need them: their version, their keys, their blocks; and whose tables may not be written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import hudi
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import lakelatch
from lakelatch.engine.table.table import check_writable
from lakelatch.errors import InvalidRequest
from lakelatch.format.log.blocks import data_block_format
from lakelatch.format.log.framing import AVRO_BLOCK, DELETE_BLOCK, PARQUET_BLOCK, read_blocks
from lakelatch.storage.local import LocalStorage
from lakelatch.timeline.properties_file import PROPERTIES_PATH
from lakelatch.timeline.table_config import TableConfig, load_table_config

pytestmark = pytest.mark.spark
TreeHash = Callable[[str], dict[str, str]]
OPTIONS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.bucket.index.num.buckets": "2",
}
VERSION = "hoodie.write.table.version"
PARTITION = "hoodie.datasource.write.partitionpath.field"
DELETE = {"hoodie.datasource.write.operation": "delete"}
EVERY_LOG = {"hoodie.compact.inline.max.delta.commits": "1"}
COLUMNS = "id string, ts long, v string, p string, q string"


def rows_of(*values: tuple[str, int, str]) -> list[tuple[Any, ...]]:
    return [(key, ts, v, "p", "q") for key, ts, v in values]


def by_hudi_rs(path: str) -> dict[str, str]:
    batches = [pa.record_batch(batch) for batch in hudi.HudiTableBuilder.from_base_uri(path).build().read()]
    return {row["id"]: row["v"] for batch in batches for row in batch.to_pylist()}


def by_us(spark: SparkSession, path: str) -> dict[str, str]:
    return {row["id"]: row["v"] for row in lakelatch.read(spark, path).toArrow().to_pylist()}


def config_of(path: str) -> TableConfig:
    return load_table_config(LocalStorage(path))


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t")


@pytest.fixture
def write(spark: SparkSession, path: str) -> Callable[..., None]:
    def put(rows: list[tuple[Any, ...]], columns: str = COLUMNS, **more: str) -> None:
        options = {**OPTIONS, **{name.replace("__", "."): value for name, value in more.items()}}
        lakelatch.write(spark.createDataFrame(rows, columns), path, options)

    return put


@pytest.mark.parametrize("partition", ["", "p"])
def test_the_life_of_a_table_of_version_8(
    spark: SparkSession, path: str, write: Callable[..., None], tree_hash: TreeHash, partition: str
) -> None:
    version = {"hoodie__write__table__version": "8"}
    write(rows_of(("a", 1, "1"), ("b", 1, "1"), ("c", 5, "1")), **{PARTITION: partition}, **version)
    write(rows_of(("a", 2, "2"), ("c", 4, "2")), **version)
    write(rows_of(("b", 2, "")), **DELETE)
    assert by_us(spark, path) == by_hudi_rs(path) == {"a": "2", "c": "1"}
    assert lakelatch.compact(spark, path, {**OPTIONS, **EVERY_LOG})
    write(rows_of(("b", 1, "older than its delete"), ("c", 6, "3")))
    assert by_us(spark, path) == by_hudi_rs(path) == {"a": "2", "c": "3"}
    text = (Path(path) / PROPERTIES_PATH).read_text()
    for line in (
        "hoodie.table.version=8",
        "hoodie.table.initial.version=8",
        "hoodie.table.precombine.field=ts",
        "hoodie.record.merge.strategy.id=eeb8d96f-b1e4-49fd-bbf8-28ac514178e5",
        "hoodie.compaction.payload.class=org.apache.hudi.common.model.DefaultHoodieRecordPayload",
        "hoodie.datasource.write.recordkey.field=id",
    ):
        assert line in text.splitlines()
    assert "hoodie.table.ordering.fields" not in text and "hoodie.table.format" not in text
    before = tree_hash(path)
    with pytest.raises(InvalidRequest, match=r"hoodie\.write\.table\.version=9.*was made with 8"):
        write(rows_of(("a", 3, "3")), hoodie__write__table__version="9")
    assert tree_hash(path) == before


def test_version_9_is_the_default_and_stays(path: str, write: Callable[..., None], tree_hash: TreeHash) -> None:
    write(rows_of(("a", 1, "1")))
    assert config_of(path).version == 9
    before = tree_hash(path)
    with pytest.raises(InvalidRequest, match=r"hoodie\.write\.table\.version=8.*was made with 9"):
        write(rows_of(("a", 3, "3")), hoodie__write__table__version="8")
    with pytest.raises(InvalidRequest, match=r"hoodie\.write\.table\.version='6'.*8 or 9"):
        write(rows_of(("a", 3, "3")), hoodie__write__table__version="6")
    assert tree_hash(path) == before


@pytest.mark.parametrize(("version", "key"), [("9", "id:x:1"), ("8", "x:1")])
def test_keys_of_one_field_and_several_partition_fields(
    spark: SparkSession, path: str, write: Callable[..., None], version: str, key: str
) -> None:
    """As the Java of that table version makes them: another text would be another row, in another bucket."""
    write(rows_of(("x:1", 1, "1")), **{PARTITION: "p,q", VERSION: version, "hoodie.bucket.index.num.buckets": "7"})
    meta = {"lakelatch.read.meta.columns": "true"}
    (row,) = lakelatch.read(spark, path, meta).toArrow().to_pylist()
    assert (row["_hoodie_record_key"], row["id"]) == (key, "x:1")
    if version == "9":  # seen in Java 1.2.0: "x:1:2" of 7 buckets is in 1, as the text "id:x:1:2"
        write(rows_of(("x:1:2", 1, "1")), **{"hoodie.bucket.index.num.buckets": "7"})
        files = {row["id"]: row["_hoodie_file_name"] for row in lakelatch.read(spark, path, meta).toArrow().to_pylist()}
        assert files["x:1:2"].startswith("00000001-")
        with pytest.raises(Exception, match="',' in the record key field 'id'"):
            write(rows_of(("x,1", 1, "1")), **{"hoodie.bucket.index.num.buckets": "7"})
    write(rows_of(("x:1", 2, "")), **DELETE, **{"hoodie.bucket.index.num.buckets": "7"})
    assert "x:1" not in by_us(spark, path) and by_us(spark, path) == by_hudi_rs(path)


@pytest.mark.parametrize(
    ("asked", "kind"), [({}, AVRO_BLOCK), ({"hoodie.logfile.data.block.format": "parquet"}, PARQUET_BLOCK)]
)
def test_rows_ordered_by_texts_are_avro(
    spark: SparkSession, path: str, write: Callable[..., None], asked: dict[str, str], kind: int
) -> None:
    """Java compares texts of parquet blocks wrongly. Log compactions keep to it."""
    columns = "id string, ts string, v string"
    for ts in "bac":
        write([("x", ts, ts), ("y", "b", ts)], columns, **asked)
    write([("y", "a", "")], columns, **DELETE, **asked)
    assert by_us(spark, path) == by_hudi_rs(path) == {"x": "c", "y": "c"}
    kinds = {block.kind for file in Path(path).glob(".*.log.*") for block in read_blocks(file.read_bytes(), file.name)}
    assert kinds == {kind, DELETE_BLOCK}
    if not asked:
        runs = {**OPTIONS, "hoodie.log.compaction.enable": "true", "hoodie.log.compaction.blocks.threshold": "2"}
        plan = lakelatch.schedule_log_compaction(path, runs)
        assert plan is not None
        lakelatch.execute_log_compaction(spark, path, plan, runs)
        files = Path(path).glob(".*2147483646-0-0")
        assert (
            AVRO_BLOCK in {block.kind for file in files for block in read_blocks(file.read_bytes(), file.name)} <= kinds
        )
        assert by_us(spark, path) == by_hudi_rs(path) == {"x": "c", "y": "c"}


@pytest.mark.parametrize(
    ("kind", "merge_mode", "block_format"),
    [
        (pa.string(), "EVENT_TIME_ORDERING", "avro"),
        (pa.string(), "COMMIT_TIME_ORDERING", "parquet"),
        (pa.int64(), "EVENT_TIME_ORDERING", "parquet"),
        (pa.decimal128(10, 2), "EVENT_TIME_ORDERING", "parquet"),
    ],
)
def test_which_blocks_a_table_gets(kind: pa.DataType, merge_mode: str, block_format: str) -> None:
    config = TableConfig("t", ("id",), ordering_field="ts", merge_mode=merge_mode)
    assert data_block_format(config, pa.schema([("id", pa.string()), ("ts", kind)])) == block_format


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"hoodie.table.keygenerator.type": "TIMESTAMP"}, "keygenerator.type=TIMESTAMP"),
        ({"hoodie.table.keygenerator.type": "CUSTOM"}, "keygenerator.type=CUSTOM"),
        ({"hoodie.table.keygenerator.class": "org.apache.hudi.keygen.CustomKeyGenerator"}, "CustomKeyGenerator"),
        ({"hoodie.table.keygenerator.class": "com.example.MyKeys"}, "com.example.MyKeys"),
        (
            {"hoodie.table.partition_extractor_class": "org.apache.hudi.hive.SlashEncodedDayPartitionValueExtractor"},
            "three folders of a day",
        ),
        ({"hoodie.table.keygenerator.type": "COMPLEX", "hoodie.table.version": "8"}, "keygenerator.encoding=FIELD_P"),
        ({"hoodie.record.merge.mode": "CUSTOM"}, "merge.mode=CUSTOM"),
        ({"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}, "partial.update.mode=IGNORE_DEFAULTS"),
        ({"hoodie.table.keygenerator.class": "org.apache.hudi.keygen.SimpleAvroKeyGenerator"}, None),
        ({"hoodie.table.keygenerator.type": "NON_PARTITION_AVRO"}, None),
        ({"hoodie.table.keygenerator.type": "SIMPLE"}, None),
        ({"hoodie.table.keygenerator.type": "COMPLEX"}, None),
    ],
)
def test_tables_of_others_that_may_not_be_written(tmp_path: Path, values: dict[str, str], said: str | None) -> None:
    foreign = {
        "hoodie.table.name": "t",
        "hoodie.table.version": "9",
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.timeline.layout.version": "2",
        "hoodie.table.recordkey.fields": "id",
        "hoodie.table.partition.fields": "day",
        "hoodie.table.timeline.timezone": "UTC",
        "hoodie.bucket.index.num.buckets": "2",
        **values,
    }
    storage = LocalStorage(str(tmp_path))
    storage.put(PROPERTIES_PATH, "\n".join(f"{name}={value}" for name, value in foreign.items()).encode())
    config = load_table_config(storage)
    if said is None:
        check_writable(config)
    else:
        with pytest.raises(InvalidRequest, match=said.replace(".", r"\.")):
            check_writable(config)
