"""The options of the parquet files that become base files, under the names that Hudi and parquet-mr have for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from inspect import signature

import pyarrow as pa
import pyarrow.parquet as pq

from lakelatch.errors import InvalidRequest
from lakelatch.option_values import Option, ParsedOptions, flag, fraction, one_of, option, whole

BLOCK_SIZE = "hoodie.parquet.block.size"
CODEC = "hoodie.parquet.compression.codec"
BLOOM_FILTER = "parquet.bloom.filter.enabled"
BLOOM_VALUES = "parquet.bloom.filter.expected.ndv"
BLOOM_ERROR = "parquet.bloom.filter.fpp"

ZSTD, SNAPPY, GZIP, UNCOMPRESSED = "zstd", "snappy", "gzip", "uncompressed"
CODECS = (ZSTD, SNAPPY, GZIP, UNCOMPRESSED)
_OF_COLUMN = "#"
_BYTES_MOST = 2**31 - 1  # a number of Java's
_VALUES_MOST = 10**12
_FALSE_POSITIVES = 0.01  # parquet-mr's default


@dataclass(frozen=True)
class BloomFilter:
    """The Bloom filter of a column in each row group.

    It is made for this number of distinct `values`, or for as many as a row group has rows. `false_positives` is the
    share of absent values that it does not exclude.
    """

    column: str
    values: int | None = None
    false_positives: float = _FALSE_POSITIVES


def _not_all(key: str, text: str) -> None:
    if flag(key, text):
        raise InvalidRequest(
            f"{key}=true would make a filter for every column, which few reads would use: name the columns, "
            f"as in {key}#customer=true",
            option=key,
        )


@dataclass(frozen=True)
class BaseFileOptions(ParsedOptions):
    """The layout of base files.

    A row group has at most `block_bytes` of rows in memory; None: the default of its writer.
    """

    also = (Option(BLOOM_FILTER, _not_all, None),)
    block_bytes: int | None = option(BLOCK_SIZE, whole(64 * 1024, _BYTES_MOST))
    page_bytes: int = option("hoodie.parquet.page.size", whole(1024, _BYTES_MOST), 1024 * 1024)  # as in Hudi
    codec: str = option(CODEC, one_of(*CODECS), ZSTD)
    dictionary: bool = option("hoodie.parquet.dictionary.enabled", flag, True)
    bloom_filters: tuple[BloomFilter, ...] = ()

    def completed(self, values: Mapping[str, str]) -> BaseFileOptions:
        """With Bloom filters, whose columns are in lower case here, as keys of options are; see `for_table`."""
        found = _bloom_filters(values)
        return replace(self, bloom_filters=found) if found else self

    def for_table(self, schema: pa.Schema) -> BaseFileOptions:
        """The options with columns in the table's own case; `schema` has meta columns.

        Errors: `InvalidRequest` for a column that the table does not have, or that can have no Bloom filter.
        """
        found = tuple(replace(one, column=_column_of(schema, one.column)) for one in self.bloom_filters)
        return replace(self, bloom_filters=found)


def is_bloom_key(key: str) -> bool:
    """Whether an option's key, in lower case, is for the Bloom filter of one column."""
    return key.partition(_OF_COLUMN)[0] in (BLOOM_FILTER, BLOOM_VALUES, BLOOM_ERROR) and _OF_COLUMN in key


def _bloom_filters(values: Mapping[str, str]) -> tuple[BloomFilter, ...]:
    found = []
    for key in sorted(filter(is_bloom_key, values)):
        name, _, column = key.partition(_OF_COLUMN)
        if name != BLOOM_FILTER:
            if f"{BLOOM_FILTER}#{column}" not in values:
                raise InvalidRequest(
                    f"{key}={values[key]} says how a Bloom filter is made, and there is none: set "
                    f"{BLOOM_FILTER}#{column}=true as well, or remove it",
                    option=key,
                )
        elif flag(key, values[key]):
            _ensure_can_write(key)
            count = Option(f"{BLOOM_VALUES}#{column}", whole(1, _VALUES_MOST), None)
            share = Option(f"{BLOOM_ERROR}#{column}", fraction(_FALSE_POSITIVES), _FALSE_POSITIVES)
            found.append(BloomFilter(column, count.of(values), share.of(values)))
    return tuple(found)


def _ensure_can_write(key: str) -> None:
    if "bloom_filter_options" not in signature(pq.write_table).parameters:
        raise InvalidRequest(
            f"{key}=true, and pyarrow {pa.__version__} writes no Bloom filters: install 24 or later, also where "
            "tasks run, or remove the option",
            option=key,
        )


def _column_of(schema: pa.Schema, name: str) -> str:
    option = f"{BLOOM_FILTER}#{name}"
    found = [column for column in schema.names if column.lower() == name]
    if len(found) != 1:
        raise InvalidRequest(
            f"{option}=true names a column that the table does not have: its columns are {', '.join(schema.names)}",
            option=option,
        )
    kind = schema.field(found[0]).type
    if pa.types.is_nested(kind) or pa.types.is_boolean(kind):
        raise InvalidRequest(
            f"{option}=true: the column is a {kind}, and Bloom filters are for plain columns with more values than "
            "true and false; remove the option",
            option=option,
        )
    return str(found[0])
