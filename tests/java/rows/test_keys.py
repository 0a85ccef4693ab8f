"""Keys and folders of any text: each engine finds the rows that the other one wrote, and writes no second ones."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from java_hudi import ORDERED, SHARED, JavaHudi, JavaHudiError
from pyspark.sql import SparkSession

import lakelatch

pytestmark = pytest.mark.spark
KEY = "hoodie.datasource.write.recordkey.field"
PARTITION = "hoodie.datasource.write.partitionpath.field"
GENERATOR = "hoodie.datasource.write.keygenerator.class"
KEYGEN = "org.apache.hudi.keygen"
TIMES = "hoodie.keygen.timebased."
ZONED = {f"{TIMES}timezone": "Europe/Paris", f"{TIMES}output.dateformat": "yyyy/MM/dd"}
MS = 1704063600000  # an hour before the year 2024 of UTC, and its beginning in Paris
OURS = (KEY, PARTITION, GENERATOR, "hoodie.datasource.write.precombine.field", "hoodie.bucket.index.num.buckets")
TABLES = {
    "several": ({KEY: "a,b", GENERATOR: f"{KEYGEN}.ComplexKeyGenerator", PARTITION: "part"}),
    "timestamp": (
        {KEY: "id", GENERATOR: f"{KEYGEN}.TimestampBasedKeyGenerator", PARTITION: "ms"}
        | {f"{TIMES}timestamp.type": "EPOCHMILLISECONDS", **ZONED}
    ),
    "texts": (
        {KEY: "id", GENERATOR: f"{KEYGEN}.TimestampBasedKeyGenerator", PARTITION: "day"}
        | {f"{TIMES}timestamp.type": "DATE_STRING", f"{TIMES}input.dateformat": "yyyy-MM-dd HH:mm", **ZONED}
    ),
    "custom": (
        {KEY: "id", GENERATOR: f"{KEYGEN}.CustomKeyGenerator", PARTITION: "part:simple,ms:timestamp"}
        | {f"{TIMES}timestamp.type": "EPOCHMILLISECONDS", **ZONED}
    ),
    "custom texts": (
        {KEY: "id", GENERATOR: f"{KEYGEN}.CustomKeyGenerator", PARTITION: "part:simple,day:timestamp"}
        | {f"{TIMES}timestamp.type": "DATE_STRING", f"{TIMES}input.dateformat": "yyyy-MM-dd HH:mm", **ZONED}
        | {f"{TIMES}output.dateformat": "yyyy-MM-dd"}
    ),
    "slashes": {KEY: "id", GENERATOR: f"{KEYGEN}.SimpleKeyGenerator", PARTITION: "path"},
}
# Java takes the folders of a custom key generator for values of the fields: dates for numbers, and slashes for folders.
UNREADABLE = {"custom": "non-encoded slashes", "custom days": "Failed to cast value `.*` to `LongType`"}
TABLES["custom days"] = {**TABLES["custom"], f"{TIMES}output.dateformat": "yyyy-MM-dd"}
CASES = [
    *((name, "ours") for name in TABLES),
    *((name, "java") for name in ("several", "timestamp", "texts", "custom", "slashes")),
]


def rows(ts: int) -> pa.Table:
    parts = ["x y", None, "z", "", "x y"]
    return pa.table(
        {
            "id": pa.array(range(5), pa.int64()),
            "ts": pa.array([ts] * 5, pa.int64()),
            "a": ["1,2", "10:30:00,", "x:y", ",,", "plain"],
            "b": ["c:d", "e,", None, "f:,", ""],
            "part": parts,
            "path": ["eu/de", "eu/fr", "us", None, "us"],
            "ms": pa.array([MS, MS - 1, None, MS + 1, 0], pa.int64()),
            "day": ["2024-01-01 00:30", "2023-12-31 23:59", None, "2024-07-01 1:05", "1969-12-31 00:00"],
        }
    )


@pytest.mark.parametrize(("name", "first"), CASES)
def test_both_engines_make_the_same_keys_and_folders(
    java: JavaHudi, spark: SparkSession, tmp_path: Path, name: str, first: str
) -> None:
    path, named = str(tmp_path / "trips"), TABLES[name]
    javas = {**SHARED, **ORDERED, **named, "hoodie.bucket.index.hash.field": named[KEY]}
    own = {key: value for key, value in javas.items() if key in OURS or key.startswith(TIMES)}

    def write(engine: str, ts: int) -> None:
        if engine == "java":
            java.write(path, rows(ts), javas)
        else:
            lakelatch.write(spark.createDataFrame(rows(ts)), path, own)

    write(first, 1)
    if first == "java":
        properties = Path(path, ".hoodie/hoodie.properties")
        more = {key: value for key, value in own.items() if key.startswith(TIMES)}
        more |= {"hoodie.bucket.index.num.buckets": "2", "hoodie.bucket.index.hash.field": named[KEY]}
        properties.write_text(properties.read_text() + "".join(f"\n{key}={value}" for key, value in more.items()))
        properties.with_name(f".{properties.name}.crc").unlink()  # Java's, of what stood there
    before = written(spark, path)
    write("ours" if first == "java" else "java", 2)
    after = written(spark, path)
    assert [row[:4] for row in before] == [row[:4] for row in after] and len(after) == 5
    assert {row[4] for row in after} == {2}
    if name in UNREADABLE:  # whoever has written it
        with pytest.raises(JavaHudiError, match=UNREADABLE[name]):
            java.read(path)
    else:
        assert sorted(row["_hoodie_record_key"] for row in java.read(path)) == sorted(str(row[1]) for row in after)


def written(spark: SparkSession, path: str) -> list[tuple[object, ...]]:
    """The id, key, folder and bucket of each row, and its time."""
    found = lakelatch.read(spark, path, {"lakelatch.read.meta.columns": True}).collect()
    keyed = (
        (row.id, row._hoodie_record_key, row._hoodie_partition_path, row._hoodie_file_name[:8], row.ts) for row in found
    )
    return sorted(keyed)
