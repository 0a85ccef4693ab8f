"""Record keys and partition paths, as Hudi's key generators spell them."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.errors import InvalidRequest

_NULL_KEY = "__null__"
_EMPTY_KEY = "__empty__"
_DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_PLAIN_PARTITION = r"^[^/\\:%?#*\[\]{}\x00-\x1f\x7f\"'^|]+$"


def record_keys(table: pa.Table, fields: Sequence[str]) -> pa.Array:
    """The key text of each row: the value of a single field, or `name:value,...` of several.

    Errors: `InvalidRequest` if a key column is missing, if a single key is null or empty or all fields of a composite
    one are, or if a value holds characters that would make the bucket hash ambiguous.
    """
    for name in fields:
        if name not in table.column_names:
            raise InvalidRequest(f"the record key column {name!r} is missing from the data: add it")
    if len(fields) == 1:
        return _single_keys(field_texts(table, fields[0]), fields[0])
    parts = []
    unset = None
    for name in fields:
        texts = field_texts(table, name)
        _refuse(texts, "[,:]", name, "',' or ':', which separate the parts of a composite record key")
        absent = pc.or_kleene(pc.is_null(texts), pc.equal(pc.fill_null(texts, ""), ""))
        unset = absent if unset is None else pc.and_(unset, absent)
        shown = pc.if_else(pc.equal(pc.fill_null(texts, _NULL_KEY), ""), _EMPTY_KEY, pc.fill_null(texts, _NULL_KEY))
        parts.append(pc.binary_join_element_wise(pa.scalar(name), shown, ":"))
    count = pc.sum(unset).as_py() or 0
    if count:
        raise InvalidRequest(f"{count} rows have no value in any record key field ({', '.join(fields)}): remove them")
    return pc.binary_join_element_wise(*parts, ",")


def partition_paths(table: pa.Table, fields: Sequence[str], hive_style: bool, url_encode: bool) -> pa.Array:
    """The partition folder of each row: the fields' values (`name=value` if hive-style), joined by '/'; "" for none."""
    if not fields:
        return pa.array([""], pa.string()).take(pa.array([0] * table.num_rows, pa.int32()))
    parts = []
    for name in fields:
        if name not in table.column_names:
            raise InvalidRequest(f"the partition column {name!r} is missing from the data: add it")
        texts = pc.fill_null(field_texts(table, name), "")
        texts = pc.if_else(pc.equal(texts, ""), _DEFAULT_PARTITION, texts)
        if url_encode:
            encoded = texts.dictionary_encode()
            safe = pa.array([quote(value, safe="") for value in encoded.dictionary.to_pylist()], pa.string())
            texts = safe.take(encoded.indices)
        else:
            strange = pc.invert(pc.match_substring_regex(texts, _PLAIN_PARTITION))
            strange = pc.or_(strange, pc.is_in(texts, value_set=pa.array([".", "..", ".hoodie"])))
            if pc.any(strange).as_py():
                example = texts.filter(strange)[0].as_py()
                raise InvalidRequest(
                    f"the partition column {name!r} holds {example!r}, which is no folder name: set "
                    "hoodie.datasource.write.partitionpath.urlencode=true when the table is made, or clean the column"
                )
        parts.append(pc.binary_join_element_wise(pa.scalar(name), texts, "=") if hive_style else texts)
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, "/")


def field_texts(table: pa.Table, name: str) -> pa.Array:
    """A column's values as Hudi writes them into keys and paths; null stays null.

    Integers in decimal, booleans as true and false, dates as yyyy-MM-dd, timestamps as microseconds since 1970.
    """
    column = table[name].combine_chunks()
    kind = column.type
    if pa.types.is_string(kind):
        return column
    if pa.types.is_large_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column.cast(pa.string())
    if pa.types.is_date(kind):
        return pc.strftime(column, "%Y-%m-%d")
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).cast(pa.string())
    if pa.types.is_decimal(kind):
        return column.cast(pa.string())
    raise InvalidRequest(f"the column {name!r} is {kind} and cannot be part of a record key or partition: cast it")


def _single_keys(texts: pa.Array, name: str) -> pa.Array:
    if texts.null_count:
        raise InvalidRequest(f"{texts.null_count} rows have no value in the record key {name!r}: fill or remove them")
    empty = pc.sum(pc.equal(texts, "")).as_py() or 0
    if empty:
        raise InvalidRequest(f"{empty} rows have an empty record key {name!r}: fill or remove them")
    _refuse(texts, ",.*:|:.*,", name, "both ',' and ':', which Hudi would read as a composite record key")
    return texts


def _refuse(texts: pa.Array, pattern: str, name: str, what: str) -> None:
    bad = pc.match_substring_regex(texts, pattern)
    if pc.any(bad).as_py():
        example = texts.filter(bad)[0].as_py()
        raise InvalidRequest(f"the record key column {name!r} holds {example!r}, with {what}: replace them")
