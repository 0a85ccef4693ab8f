"""Record keys and partition paths, in the text form that Hudi gives them.

Values become text as Hudi's key generators do by default: whole numbers in decimal, booleans as `true` and `false`,
dates as `2024-01-31`, timestamps as microseconds since 1970, decimals with all digits of their scale.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.errors import InvalidRequest
from lakelatch.format.avro import shown_type

NULL_TEXT = "__null__"
EMPTY_TEXT = "__empty__"
DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_NAME_BYTES_MAX = 200  # of the 255 that file systems take; a field's name may stand before it
# What Hive, and with it Hudi, escapes in a folder's name.
_UNSAFE_IN_PATHS = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(1, 32)}


def record_keys(table: pa.Table, fields: Sequence[str], prefixed: bool = False, commas: bool = True) -> pa.Array:
    """The key of each row: the plain value of a single field (`f:v` if `prefixed`), `f1:v1,f2:v2` of several.

    Hudi escapes nothing, and takes the last `,` before a `:` for the end of a value where it splits a key again. So a
    value may hold both but for a `,` with a `:` anywhere behind it: two rows could have one key. Earlier versions of
    Hudi split at each `,`: without `commas` a value of several may hold none.

    Errors: `InvalidRequest` for missing columns, keys that are null or empty, and values that would be torn apart.
    """
    if not fields:
        raise InvalidRequest("a record needs a key: set hoodie.datasource.write.recordkey.field")
    texts = [value_texts(table, field) for field in fields]
    if len(fields) == 1:
        _check_single(texts[0], fields[0], prefixed)
        return pc.binary_join_element_wise(f"{fields[0]}:", texts[0], "") if prefixed else texts[0]
    parts: list[pa.Array | str] = []
    for field, column in zip(fields, texts, strict=True):
        _check_part(column, field, commas)
        shown = pc.if_else(pc.equal(column, ""), EMPTY_TEXT, column)
        parts += [f"{',' if parts else ''}{field}:", pc.fill_null(shown, NULL_TEXT)]
    blank = reduce(pc.and_, [pc.fill_null(pc.equal(column, ""), True) for column in texts])
    _refuse(blank, f"are null or empty in every record key field ({', '.join(fields)})", "fill them or drop those rows")
    return pc.binary_join_element_wise(*parts, "")


def folder_paths(
    texts: Sequence[pa.Array],
    fields: Sequence[str],
    hive_style: bool = False,
    url_encode: bool = False,
    split: Collection[str] = (),
) -> pa.Array:
    """The folder of each row, of the text of each partition field: `v`, or `field=v`, joined by `/`.

    Of the fields in `split` a value with slashes makes several folders, one in the other. Errors: `InvalidRequest`,
    unless `url_encode`, for values that are no safe folder names.
    """
    levels = [
        _level(text, field, hive_style, url_encode, field in split) for text, field in zip(texts, fields, strict=True)
    ]
    return pc.binary_join_element_wise(*levels, "/") if len(levels) > 1 else levels[0]


def value_texts(table: pa.Table, field: str) -> pa.Array:
    """A key or partition column as text; nulls stay null. `InvalidRequest` if it is missing or its type has no text."""
    if field not in table.column_names:
        raise InvalidRequest(
            f"the column {field!r} is missing from data of {table.num_rows} rows ({', '.join(table.column_names)})"
        )
    column = table.column(field)
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    else:
        check_text(field, kind)
    texts = (column if pa.types.is_string(kind) else column.cast(pa.string())).combine_chunks()
    return texts if isinstance(texts, pa.Array) else pa.concat_arrays(texts.chunks)


def check_text(field: str, kind: pa.DataType) -> None:
    """`InvalidRequest` for a column of a type that has no text."""
    if not (_has_text(kind) or pa.types.is_timestamp(kind)):
        raise InvalidRequest(
            f"the column {field!r} is {shown_type(kind)} and cannot be part of a record key or a partition path: its "
            "text is not the same everywhere. Cast it to string, a whole number, decimal or date"
        )


def _has_text(kind: pa.DataType) -> bool:
    """Floating point numbers have not: Java and Arrow print them differently."""
    types = pa.types
    plain = types.is_integer(kind) or types.is_boolean(kind) or types.is_date(kind) or types.is_decimal(kind)
    return bool(plain or types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _check_single(texts: pa.Array, field: str, prefixed: bool) -> None:
    remedy = "fill them or drop those rows"
    if texts.null_count:
        _refuse(pc.is_null(texts), f"have no value in the record key field {field!r}", remedy)
    _refuse(pc.equal(texts, ""), f"have an empty value in the record key field {field!r}", remedy)
    torn = pc.match_substring(texts, ",")
    if prefixed:  # the ':' is in the prefix, and the bucket would be that of the value alone
        what, remedy = "','", "replace it"
    else:
        torn = pc.and_(torn, pc.match_substring(texts, ":"))
        what, remedy = "both ',' and ':'", "replace one of the two characters"
    _refuse(torn, f"have {what} in the record key field {field!r}, which Hudi reads as a key of several fields", remedy)


def _check_part(texts: pa.Array, field: str, commas: bool) -> None:
    one_of_several = f"{field!r}, one of several record key fields"
    if commas:
        torn, remedy = pc.match_substring_regex(texts, "(?s),.*:"), "replace one of the two characters"
        what = f"have ',' and a ':' behind it in {one_of_several}: Hudi would split the key there"
    else:
        torn, remedy = pc.match_substring(texts, ","), "replace it, or make the table with version 9"
        what = f"have ',' in {one_of_several}: the Hudi that writes tables of version 8 would split the key there"
    _refuse(pc.fill_null(torn, False), what, remedy)
    reserved = pc.is_in(texts, value_set=pa.array([NULL_TEXT, EMPTY_TEXT]))
    _refuse(
        reserved, f"have {NULL_TEXT!r} or {EMPTY_TEXT!r} in {field!r}, which stand for null and empty", "replace it"
    )


def _refuse(wrong: pa.Array, what: str, remedy: str) -> None:
    count = wrong.true_count
    if count:
        raise InvalidRequest(f"{count} of {len(wrong)} rows {what}: {remedy}", rows=count)


def _level(texts: pa.Array, field: str, hive_style: bool, url_encode: bool, split: bool) -> pa.Array:
    """The part of the path that one field makes. Distinct values are few, so those are worked on, not the rows."""
    distinct = texts.dictionary_encode(null_encoding="encode")
    prefix = f"{field}=" if hive_style else ""

    def folders(value: str | None) -> str:
        names = value.split("/") if value and split and not url_encode else [value]
        if len(names) > 1 and not all(names):
            raise InvalidRequest(
                f"the value {value!r} of the partition field {field!r} has an empty name between slashes: replace it"
            )
        return prefix + "/".join(_folder_name(name, field, url_encode) for name in names)

    names = [folders(value) for value in distinct.dictionary.to_pylist()]
    return pa.array(names, pa.string()).take(distinct.indices)


def _folder_name(value: str | None, field: str, url_encode: bool) -> str:
    if not value:
        return DEFAULT_PARTITION
    unsafe = not _UNSAFE_IN_PATHS.isdisjoint(value)
    if value.startswith(".") or "\0" in value:
        raise InvalidRequest(
            f"the value {value!r} of the partition field {field!r} would make a hidden or impossible folder: replace it"
        )
    if unsafe and not url_encode:
        raise InvalidRequest(
            f"the value {value!r} of the partition field {field!r} is no safe folder name: replace such values, or "
            "make the table with hoodie.datasource.write.partitionpath.urlencode=true"
        )
    name = "".join(f"%{ord(char):02X}" if char in _UNSAFE_IN_PATHS else char for char in value) if unsafe else value
    if len(name.encode("utf-8")) > _NAME_BYTES_MAX:
        raise InvalidRequest(
            f"the value {value[:40]!r}... of the partition field {field!r} would make a folder's name of more than "
            f"{_NAME_BYTES_MAX} bytes, which file systems do not take: partition by something shorter"
        )
    return name
