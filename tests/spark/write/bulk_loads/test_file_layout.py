"""Files of a bulk load as options lay them out: what Spark's own scan then need not read, and who reads them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import hudi
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame

import lakelatch
from lakelatch.errors import InvalidRequest

OPERATION = "hoodie.datasource.write.operation"
SORT_COLUMNS = "hoodie.bulkinsert.user.defined.partitioner.sort.columns"
BLOCK_SIZE, CODEC = "hoodie.parquet.block.size", "hoodie.parquet.compression.codec"
BLOOM = "parquet.bloom.filter.enabled#"
COLUMNS = "id long, ts long, Visitor string, price int"
COUNT = 8000
#: Several row groups, which nothing rules out but their bounds: Spark looks into dictionaries, too.
SMALL_GROUPS = {BLOCK_SIZE: "131072", "hoodie.parquet.dictionary.enabled": "false"}
Make = Callable[..., Any]


def load(table: Any, part: str | None = None, **options: str) -> lakelatch.CommitResult:
    frame = table.spark.range(COUNT).selectExpr(
        "id", "1L ts", "md5(string(id)) Visitor", "int(id * 7919 % 5003) price", *([f"'{part}' part"] if part else [])
    )
    small = {**table.options, "hoodie.bulkinsert.shuffle.parallelism": "2", **SMALL_GROUPS}
    return lakelatch.write(frame, table.path, {**small, OPERATION: "bulk_insert", **options})


def files(table: Any, done: lakelatch.CommitResult) -> list[Any]:
    return [pq.ParquetFile(next(Path(table.path).rglob(name))) for name in done.files]


def scanned(frame: DataFrame) -> int:
    """How many rows Spark's scan of files gives to what comes behind it."""
    frame.collect()
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    scans = [leaves.apply(number) for number in range(leaves.length())]
    assert all("FileScan parquet" in scan.toString() for scan in scans)
    return sum(int(scan.metrics().apply("numOutputRows").value()) for scan in scans)


def in_hudi_rs(table: Any) -> list[int]:
    batches = hudi.HudiTableBuilder.from_base_uri(table.path).build().read(hudi.HudiReadOptions())
    return sorted(key for batch in batches for key in pa.record_batch(batch).column("id").to_pylist())


def test_rows_of_each_file_are_sorted_by_the_columns_and_fewer_row_groups_are_read(make_table: Make) -> None:
    table = make_table(COLUMNS)
    done = load(table, **{SORT_COLUMNS: "price, Visitor"})
    for file in files(table, done):
        rows = list(zip(*(file.read()[name].to_pylist() for name in ("price", "Visitor")), strict=True))
        assert rows == sorted(rows) and len(rows) > COUNT / 3
        place = file.schema_arrow.get_field_index("price")
        bounds = [file.metadata.row_group(number).column(place).statistics for number in range(file.num_row_groups)]
        assert len(bounds) > 3 and all(one.max <= two.min for one, two in pairwise(bounds))
    found = lakelatch.read(table.spark, table.path)
    assert 0 < scanned(found.where("price = 77")) < COUNT / 3
    assert sorted(row.price for row in found.where("price between 70 and 77").select("price").collect()) == sorted(
        price for key in range(COUNT) if 70 <= (price := key * 7919 % 5003) <= 77
    )
    assert in_hudi_rs(table) == list(range(COUNT))


def test_without_these_options_rows_are_sorted_by_key_and_all_of_them_are_read(make_table: Make) -> None:
    table = make_table(COLUMNS)
    for file in files(table, load(table)):
        keys = file.read()["_hoodie_record_key"].to_pylist()
        assert keys == sorted(keys)
    found = lakelatch.read(table.spark, table.path)
    assert scanned(found.where("price = 77")) == scanned(found.where("Visitor = md5('-1')")) == COUNT


def test_the_newest_row_of_a_key_is_loaded_and_later_changed_and_compacted(make_table: Make) -> None:
    table = make_table("id long, ts long, v string, price int")
    frame = table.spark.range(3000).selectExpr("id % 2000 id", "id ts", "string(id) v", "int(5000 - id) price")
    options = {**table.options, OPERATION: "bulk_insert", SORT_COLUMNS: "price"}
    assert lakelatch.write(frame, table.path, options).rows_written == 2000
    expected = {key: str(key + 2000 if key < 1000 else key) for key in range(2000)}
    for key, ts in ((5, 9000), (1999, 9000), (6, 1)):
        table.write([(key, ts, "new", 1)], local=False)
        expected[key] = "new" if ts == 9000 else expected[key]
    assert dict(table.read(None, "id", "v")) == expected
    (done,) = table.compact()
    for file in files(table, done):
        keys = file.read()["_hoodie_record_key"].to_pylist()
        assert keys == sorted(keys)
    assert dict(table.read(None, "id", "v")) == expected and in_hudi_rs(table) == list(range(2000))


def test_copy_on_write_tables_are_loaded_in_this_order_too(make_cow: Make) -> None:
    table = make_cow(COLUMNS)
    for file in files(table, load(table, **{SORT_COLUMNS: "price", CODEC: "gzip"})):
        prices = file.read()["price"].to_pylist()
        assert prices == sorted(prices) and file.metadata.row_group(0).column(0).compression == "GZIP"
    table.write([(5, 9, "new", 1)], local=False)
    changed = lakelatch.read(table.spark, table.path)
    assert changed.where("Visitor = 'new'").count() == 1 and changed.count() == COUNT


def test_spark_passes_over_row_groups_that_a_bloom_filter_rules_out(make_table: Make) -> None:
    table = make_table(COLUMNS)
    wanted = {f"{BLOOM}Visitor": "true", "parquet.bloom.filter.fpp#visitor": "0.001"}
    done = load(table, **wanted, **{f"{BLOOM}_hoodie_record_key": "true"})
    found = lakelatch.read(table.spark, table.path)
    absent, there = "md5('-1')", "md5('77')"
    value = table.spark.sql(f"select {absent}").first()[0]
    groups = 0
    for file in files(table, done):
        place = file.schema_arrow.get_field_index("Visitor")
        for number in range(file.num_row_groups):
            column = file.metadata.row_group(number).column(place)
            assert column.statistics.min < value < column.statistics.max
            assert file.metadata.row_group(number).column(2).bloom_filter_offset  # of record keys
            groups += 1
    assert groups > 6
    assert scanned(found.where(f"Visitor = {absent}")) == 0
    assert 0 < scanned(found.where(f"Visitor = {there}")) < COUNT / 3
    assert [row.id for row in found.where(f"Visitor = {there}").collect()] == [77]
    assert in_hudi_rs(table) == list(range(COUNT))


def test_a_bloom_filter_of_any_type_rules_out_nothing_that_is_there(make_table: Make) -> None:
    """Only even numbers of anything are there, in no order: no bounds and no dictionary say what is between them."""
    made = {
        "whole": "int({})",
        "amount": "cast({} / 100 as decimal(10, 2))",
        "large": "cast({} as decimal(30, 2))",
        "day": "date_add(date'2020-01-01', int({}))",
        "moment": "timestamp_micros({})",
        "real": "double({})",
        "bytes": "cast(string({}) as binary)",
    }
    table = make_table("id long")
    columns = ["id", "1L ts", *(f"{of.format(f'(id * 7919 % {COUNT} * 2)')} {name}" for name, of in made.items())]
    wanted = {f"{BLOOM}{name}": "true" for name in made} | {BLOCK_SIZE: "131072"}
    options = {**table.options, **SMALL_GROUPS, **wanted, OPERATION: "bulk_insert"}
    lakelatch.write(table.spark.range(COUNT).selectExpr(*columns), table.path, options)
    found = lakelatch.read(table.spark, table.path)
    read = {}
    for name, of in made.items():
        assert found.where(f"{name} = {of.format(5000)}").count() == 1, name
        read[name] = scanned(found.where(f"{name} = {of.format(5001)}"))
    assert all(count < COUNT / 3 for count in read.values()), read


def test_other_engines_read_each_codec(make_table: Make) -> None:
    table = make_table(f"{COLUMNS}, part string", partition="part")
    codecs = ["gzip", "snappy", "uncompressed", "zstd"]
    for codec in codecs:
        done = load(table, codec, **{CODEC: codec})
        assert {file.metadata.row_group(0).column(0).compression for file in files(table, done)} == {codec.upper()}
    found = lakelatch.read(table.spark, table.path).groupBy("part").agg({"id": "sum"}).collect()
    assert sorted(map(tuple, found)) == [(codec, COUNT * (COUNT - 1) // 2) for codec in codecs]
    assert in_hudi_rs(table) == sorted(4 * list(range(COUNT)))


@pytest.mark.parametrize(
    "option, value, named",
    [
        (SORT_COLUMNS, "price,cost", "'cost'"),
        (f"{BLOOM}cost", "true", "Visitor, price"),
        (CODEC, "lz4", "zstd or snappy"),
        (BLOCK_SIZE, "12", "65536"),
    ],
)
def test_a_bad_value_leaves_the_table_as_it_was(
    make_table: Make, tree_hash: Callable[[str], dict[str, str]], option: str, value: str, named: str
) -> None:
    table = make_table(COLUMNS)
    with pytest.raises(InvalidRequest) as caught:
        load(table, **{option: value})
    assert option in caught.value.message and named in caught.value.message
    assert not Path(table.path).exists() or not lakelatch.Table.is_table(table.path)
    table.write([(1, 1, "a", 1)])
    before = tree_hash(table.path)
    with pytest.raises(InvalidRequest, match=named):
        load(table, **{option: value})
    assert tree_hash(table.path) == before
