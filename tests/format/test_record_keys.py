"""Record keys and partition paths as text."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
import pytest

from lakelatch.errors import InvalidRequest
from lakelatch.format.record_keys import partition_paths, record_keys

MOMENT = dt.datetime(2024, 1, 2, tzinfo=dt.timezone.utc)


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


@pytest.mark.parametrize(
    ("fields", "columns", "message"),
    [
        (["k"], {"k": ["a", None, None]}, r"2 of 3 rows have no value in the record key field 'k'"),
        (["k"], {"k": ["a", ""]}, r"1 of 2 rows have an empty value in the record key field 'k'"),
        (["k"], {"k": ["a:1,b:2", "ok"]}, r"1 of 2 rows have both ',' and ':' in the record key field 'k'"),
        (["missing"], {"k": ["a", "b"]}, r"'missing' is missing from data of 2 rows \(k\)"),
        (["k"], {"k": [1.5]}, r"'k' is double and cannot be part of a record key"),
        (["k"], {"k": [[1]]}, r"'k' is array<"),
        (["a", "b"], {"a": ["x:y"], "b": ["z"]}, r"1 of 1 rows have ',' or ':' in 'a'"),
        (["a", "b"], {"a": ["x"], "b": ["y,z"]}, r"1 of 1 rows have ',' or ':' in 'b'"),
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


@pytest.mark.parametrize("value", ["a/b", "a=b", "10:30", "a%20b", "x*", "a\tb", "\\"])
def test_unsafe_folder_names_are_encoded_only_on_request(value: str) -> None:
    table = pa.table({"p": [value]})
    with pytest.raises(InvalidRequest, match=r"no safe folder name.*partitionpath\.urlencode"):
        partition_paths(table, ["p"], True)
    encoded = partition_paths(table, ["p"], True, url_encode=True)[0].as_py()
    assert encoded.startswith("p=") and not set('/=:*\t\\"').intersection(encoded[2:])
    assert bytes.fromhex(encoded.partition("%")[2][:2]).decode() in value


@pytest.mark.parametrize("value", [".", "..", ".hidden", "a\0b"])
def test_impossible_folder_names_are_always_refused(value: str) -> None:
    for url_encode in (True, False):
        with pytest.raises(InvalidRequest, match="hidden or impossible"):
            partition_paths(pa.table({"p": [value]}), ["p"], False, url_encode)
