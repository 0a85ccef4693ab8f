"""How base files are laid out as options say: codecs, row groups, pages, dictionaries, Bloom filters."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from whole_rows import read_base_file

from lakelatch.errors import InvalidRequest
from lakelatch.format.base_file_options import BaseFileOptions, BloomFilter
from lakelatch.format.base_files import END_BYTES
from lakelatch.format.parquet import encode_parquet, parquet_file
from lakelatch.storage.checksums import PARTS_KEY
from lakelatch.storage.local import LocalStorage

PATH = "p/f-0_0-0-0_20260101000000000.parquet"
COUNT = 50_000
ROWS = pa.table(
    {
        "Customer": pa.array([f"c{number * 7919 % COUNT:08}" for number in range(COUNT)]),
        "kind": pa.array(["abc"[number % 3] for number in range(COUNT)]),
        "price": pa.array(np.random.default_rng(7).random(COUNT)),
        "open": pa.array([number % 2 == 0 for number in range(COUNT)]),
        "tags": pa.array([[number] for number in range(COUNT)], pa.list_(pa.int64())),
    }
)


def parsed(**options: str) -> BaseFileOptions:
    return BaseFileOptions.from_options({name.replace("__", "."): value for name, value in options.items()})


def of_bloom(*options: tuple[str, str]) -> BaseFileOptions:
    values = {f"parquet.bloom.filter.{name}": value for name, value in options}
    return BaseFileOptions.from_options(values).for_table(ROWS.schema)


def written(options: BaseFileOptions, group_rows: int | None = None) -> Any:
    return pq.ParquetFile(io.BytesIO(encode_parquet(ROWS, {}, group_rows, options)))


def chunks(file: Any, column: str) -> list[Any]:
    metadata = file.metadata
    place = [metadata.schema.column(number).path for number in range(metadata.num_columns)].index(column)
    return [metadata.row_group(number).column(place) for number in range(metadata.num_row_groups)]


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "uncompressed"])
def test_the_codec_is_that_of_all_columns(codec: str) -> None:
    file = written(parsed(hoodie__parquet__compression__codec=codec.upper()))
    found = {file.metadata.row_group(0).column(number).compression for number in range(file.metadata.num_columns)}
    assert found == {codec.upper()}
    assert file.read().equals(ROWS)


def test_a_row_group_has_as_many_bytes_of_rows_as_the_option_says() -> None:
    of_rows = {size: written(parsed(hoodie__parquet__block__size=str(size))) for size in (131_072, 1_048_576)}
    for size, file in of_rows.items():
        counts = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
        sizes = [count * ROWS.nbytes / COUNT for count in counts]
        assert all(size * 0.7 < one < size * 1.1 for one in sizes[:-1])
    assert of_rows[131_072].num_row_groups > 6 * of_rows[1_048_576].num_row_groups > 6


def test_the_option_holds_where_rows_are_in_another_order() -> None:
    assert written(BaseFileOptions(), 10_000).num_row_groups == 5
    assert written(parsed(hoodie__parquet__block__size="16777216"), 10_000).num_row_groups == 1


def test_pages_have_as_many_bytes_as_the_option_says() -> None:
    """Of each page there is a header, and nothing else in the metadata speaks of pages."""
    small, usual = (written(parsed(hoodie__parquet__page__size=size)) for size in ("1024", "1048576"))
    sizes = [chunks(file, "price")[0].total_uncompressed_size for file in (small, usual)]
    assert sizes[0] > sizes[1] + 40 * 15


def test_dictionaries_are_left_out() -> None:
    with_them, without = (written(parsed(hoodie__parquet__dictionary__enabled=one)) for one in ("true", "false"))
    assert chunks(with_them, "kind")[0].has_dictionary_page
    assert not any(chunks(without, column)[0].has_dictionary_page for column in ("kind", "Customer", "price"))


def test_each_row_group_has_a_bloom_filter_of_the_named_column_alone() -> None:
    options = of_bloom(("enabled#customer", "true"), ("enabled#kind", "false"), ("enabled", "false"))
    assert options.bloom_filters == (BloomFilter("Customer"),)
    file = written(options, 10_000)
    found = chunks(file, "Customer")
    assert len(found) == 5 and all(one.bloom_filter_offset and one.bloom_filter_length for one in found)
    assert not any(one.bloom_filter_offset for column in ("kind", "price") for one in chunks(file, column))


def test_a_bloom_filter_is_as_large_as_its_values_and_errors_need() -> None:
    """Of one percent for each value some ten bits, and sizes are powers of two."""

    def size(*options: tuple[str, str]) -> int:
        return int(
            chunks(written(of_bloom(("enabled#customer", "true"), *options), 10_000), "Customer")[0].bloom_filter_length
        )

    usual = size()
    assert 10_000 * 9.6 / 8 < usual < 3 * 10_000 * 9.6 / 8
    assert size(("expected.ndv#customer", "100")) < usual / 8
    assert size(("fpp#customer", "0.0001")) > usual
    assert size(("expected.ndv#customer", "1000000000")) == usual  # a row group has no more values than rows


def test_a_file_with_bloom_filters_is_read_in_parts_and_checked(tmp_path: Path) -> None:
    options = of_bloom(("enabled#customer", "true"))
    rows = pa.concat_tables([ROWS] * 4)
    storage = LocalStorage(str(tmp_path))
    with parquet_file(rows, {}, PATH, None, options) as file:
        storage.create_from_file(PATH, file)
    assert storage.stat(PATH).size_bytes > END_BYTES
    assert PARTS_KEY.encode() in pq.read_metadata(tmp_path / PATH).metadata
    assert read_base_file(storage, PATH, ROWS.schema.names)[0].equals(rows)


@pytest.mark.parametrize(
    "key, value, way_out",
    [
        ("hoodie.parquet.block.size", "120MB", "use 65536 to 2147483647"),
        ("hoodie.parquet.block.size", "1024", "use 65536 to 2147483647"),
        ("hoodie.parquet.page.size", "0", "use 1024 to"),
        ("hoodie.parquet.compression.codec", "lzo", "use zstd or snappy or gzip or uncompressed"),
        ("hoodie.parquet.dictionary.enabled", "some", "use true or false"),
        ("parquet.bloom.filter.enabled", "true", "parquet.bloom.filter.enabled#customer=true"),
        ("parquet.bloom.filter.enabled#customer", "yes", "use true or false"),
        ("parquet.bloom.filter.enabled#nothing", "true", "Customer, kind, price"),
        ("parquet.bloom.filter.enabled#", "true", "Customer, kind, price"),
        ("parquet.bloom.filter.enabled#open", "true", "remove the option"),
        ("parquet.bloom.filter.enabled#tags", "true", "remove the option"),
        ("parquet.bloom.filter.fpp#customer", "0.05", "set parquet.bloom.filter.enabled#customer=true as well"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(key: str, value: str, way_out: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        BaseFileOptions.from_options({key: value}).for_table(ROWS.schema)
    assert key in caught.value.message and value in caught.value.message and way_out in caught.value.message
    assert caught.value.details["option"] == key


@pytest.mark.parametrize("name, value", [("fpp", "1"), ("fpp", "nan"), ("fpp", "0"), ("expected.ndv", "0")])
def test_a_filter_that_could_not_be_made_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"{name}#customer='?{value}"):
        of_bloom(("enabled#customer", "true"), (f"{name}#customer", value))


def test_columns_that_differ_in_case_alone_are_told_apart_by_nobody() -> None:
    schema = pa.schema([("a", pa.string()), ("A", pa.string())])
    with pytest.raises(InvalidRequest, match="#a=true"):
        BaseFileOptions(bloom_filters=(BloomFilter("a"),)).for_table(schema)


def test_an_older_library_is_named_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    def older(table: object, where: object, **options: object) -> None: ...

    monkeypatch.setattr(pq, "write_table", older)
    assert parsed(hoodie__parquet__compression__codec="gzip").codec == "gzip"
    with pytest.raises(InvalidRequest, match=r"enabled#customer=true.*install 24 or later"):
        of_bloom(("enabled#customer", "true"))
