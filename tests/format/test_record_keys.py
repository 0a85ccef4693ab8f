"""Record keys and partition paths as text."""

from __future__ import annotations

import datetime as dt
import decimal
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelatch.errors import InvalidRequest
from lakelatch.format.keygen.paths import partition_paths as paths_of
from lakelatch.format.record_keys import record_keys
from lakelatch.timeline.table_config import TableConfig

MOMENT = dt.datetime(2024, 1, 2, tzinfo=dt.timezone.utc)


def partition_paths(table: pa.Table, fields: list[str], hive_style: bool, url_encode: bool = False) -> pa.Array:
    config = TableConfig("t", ("id",), tuple(fields))
    config = replace(config, hive_style_partitioning=hive_style, url_encode_partitioning=url_encode)
    return paths_of(table, config)


def keys(fields: list[str], **columns: Any) -> list[str]:
    found = record_keys(pa.table(columns), fields)
    assert found.type == pa.string()
    return list(found.to_pylist())


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (["a", "b c", "a:b", "a,b"], ["a", "b c", "a:b", "a,b"]),
        ([1, -20], ["1", "-20"]),
        (pa.array([1, 2], pa.int8()), ["1", "2"]),
        ([True, False], ["true", "false"]),
        ([dt.date(2024, 1, 31), dt.date(1969, 12, 31)], ["2024-01-31", "1969-12-31"]),
        (pa.array([MOMENT], pa.timestamp("us", "UTC")), ["1704153600000000"]),
        (pa.array([MOMENT], pa.timestamp("ms", "Europe/Paris")), ["1704153600000000"]),
        (pa.array([MOMENT.replace(tzinfo=None)], pa.timestamp("us")), ["1704153600000000"]),
        ([decimal.Decimal("1.50"), decimal.Decimal("-0.01")], ["1.50", "-0.01"]),
        ([decimal.Decimal("0.00000001")], ["1E-8"]),
        (pa.array(["x", "y", "x"]).dictionary_encode(), ["x", "y", "x"]),
    ],
)
def test_single_field_is_its_plain_text(values: Any, texts: list[str]) -> None:
    assert keys(["k"], k=values) == texts


def test_several_fields_are_named() -> None:
    assert keys(["a", "b"], a=["x", None], b=[1, 2], other=[0, 0]) == ["a:x,b:1", "a:__null__,b:2"]
    assert keys(["b", "a"], a=["", "y"], b=[1, None]) == ["b:1,a:__empty__", "b:__null__,a:y"]


def parts_as_hudi_finds_them(key: str) -> list[str]:
    """What KeyGenUtils.extractRecordKeysByFields makes of a key of several fields, all of which are wanted."""
    found, start = [], 0
    while start < len(key):
        colon = key.index(":", start)
        following, comma = key.find(":", colon + 1), -1
        while following >= 0 and (comma := key.rfind(",", 0, following)) < colon:
            following = key.find(":", following + 1)
        found.append(key[colon + 1 : comma] if following >= 0 else key[colon + 1 :])
        start = comma + 1 if following >= 0 else len(key)
    return found


@given(st.lists(st.tuples(*[st.text(alphabet=",:ab", min_size=1, max_size=6)] * 3), min_size=1, max_size=8))
def test_keys_of_several_fields_are_split_again_by_hudi(rows: list[tuple[str, str, str]]) -> None:
    fields = ["a", "b", "c"]
    for row in rows:
        torn = any(":" in value.partition(",")[2] for value in row)
        table = pa.table(dict(zip(fields, ([value] for value in row), strict=True)))
        if torn:
            with pytest.raises(InvalidRequest, match="Hudi would split the key there"):
                record_keys(table, fields)
        else:
            assert parts_as_hudi_finds_them(record_keys(table, fields)[0].as_py()) == list(row)


def test_the_hudi_of_version_8_splits_keys_at_each_comma() -> None:
    table = pa.table({"a": ["x:y"], "b": ["1,2"]})
    assert record_keys(table, ["a", "b"]).to_pylist() == ["a:x:y,b:1,2"]
    with pytest.raises(InvalidRequest, match=r"1 of 1 rows have ',' in 'b'.*or make the table with version 9"):
        record_keys(table, ["a", "b"], commas=False)


@pytest.mark.parametrize(
    ("fields", "columns", "message"),
    [
        (["k"], {"k": ["a", None, None]}, r"2 of 3 rows have no value in the record key field 'k'"),
        (["k"], {"k": ["a", ""]}, r"1 of 2 rows have an empty value in the record key field 'k'"),
        (["k"], {"k": ["a:1,b:2", "ok"]}, r"1 of 2 rows have both ',' and ':' in the record key field 'k'"),
        (["missing"], {"k": ["a", "b"]}, r"'missing' is missing from data of 2 rows \(k\)"),
        (["k"], {"k": [1.5]}, r"'k' is double and cannot be part of a record key"),
        (["k"], {"k": [[1]]}, r"'k' is array<"),
        (["a", "b"], {"a": ["x,b:1"], "b": ["z"]}, r"1 of 1 rows have ',' and a ':' behind it in 'a'"),
        (["a", "b"], {"a": ["x", "x"], "b": ["y,\n:z", "y"]}, r"1 of 2 rows have ',' and a ':' behind it in 'b'"),
        (["a", "b"], {"a": [None, "x"], "b": ["", "y"]}, r"1 of 2 rows are null or empty in every .* \(a, b\)"),
        (["a", "b"], {"a": ["__null__"], "b": ["y"]}, r"'__null__' or '__empty__' in 'a'"),
        ([], {"a": ["x"]}, r"hoodie\.datasource\.write\.recordkey\.field"),
    ],
)
def test_keys_that_cannot_be_are_refused(fields: list[str], columns: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        keys(fields, **columns)


def test_partition_paths() -> None:
    table = pa.table({"a": ["x", None, ""], "d": [dt.date(2024, 1, 2)] * 3})
    default = "__HIVE_DEFAULT_PARTITION__"
    assert partition_paths(table, [], True).to_pylist() == ["", "", ""]
    assert partition_paths(table, ["a"], False).to_pylist() == ["x", default, default]
    assert partition_paths(table, ["a"], True).to_pylist() == ["a=x", f"a={default}", f"a={default}"]
    assert partition_paths(table, ["d", "a"], True)[0].as_py() == "d=2024-01-02/a=x"
    assert partition_paths(table.slice(1), ["a"], False).to_pylist() == [default, default]


@pytest.mark.parametrize("value", ["a=b", "10:30", "a%20b", "x*", "a\tb", "\\"])
def test_unsafe_folder_names_are_encoded_only_on_request(value: str) -> None:
    table = pa.table({"p": [value]})
    with pytest.raises(InvalidRequest, match=r"no safe folder name.*partitionpath\.urlencode"):
        partition_paths(table, ["p"], True)
    encoded = partition_paths(table, ["p"], True, url_encode=True)[0].as_py()
    assert encoded.startswith("p=") and not set('/=:*\t\\"').intersection(encoded[2:])
    assert bytes.fromhex(encoded.partition("%")[2][:2]).decode() in value


def test_slashes_make_folders_where_there_is_one_field() -> None:
    table = pa.table({"p": ["eu/de", "eu"], "q": ["x", "y"]})
    assert partition_paths(table, ["p"], True).to_pylist() == ["p=eu/de", "p=eu"]
    assert partition_paths(table, ["p"], False, url_encode=True).to_pylist() == ["eu%2Fde", "eu"]
    with pytest.raises(InvalidRequest, match=r"'eu/de' of the partition field 'p' is no safe folder name"):
        partition_paths(table, ["p", "q"], False)
    for value in ("a//b", "/", "a/", "/a"):
        with pytest.raises(InvalidRequest, match="has an empty name between slashes"):
            partition_paths(pa.table({"p": [value]}), ["p"], False)


@pytest.mark.parametrize("value", [".", "..", ".hidden", "a\0b"])
def test_impossible_folder_names_are_always_refused(value: str) -> None:
    for url_encode in (True, False):
        with pytest.raises(InvalidRequest, match="hidden or impossible"):
            partition_paths(pa.table({"p": [value]}), ["p"], False, url_encode)
