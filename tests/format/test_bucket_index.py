"""Hudi's bucket hash, against vectors and a scalar version of Java's."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelatch.errors import InvalidRequest
from lakelatch.format.bucket_index import (
    bucket_file_id,
    bucket_ids,
    bucket_ids_of_texts,
    bucket_of_file_id,
    possible_bucket_counts,
    string_hashes,
)

Key = list[str | None]


def list_hash(key: Key) -> int:
    """Java's List.hashCode over String.hashCode, as unsigned 32 bits; one code unit at a time."""
    combined = 1
    for text in key:
        one = 0
        units = (text or "").encode("utf-16-be")
        for high, low in zip(units[::2], units[1::2], strict=True):
            one = (31 * one + (high << 8 | low)) % 2**32
        combined = (31 * combined + one) % 2**32
    return combined


def bucket(key: Key, count: int) -> int:
    found = bucket_ids_of_texts([pa.array([text], pa.string()) for text in key], count)
    assert found.type == pa.int32()
    return int(found[0].as_py())


@pytest.mark.parametrize(
    ("key", "signed", "buckets"),
    [
        (["id1"], 104085, (1, 5, 149)),
        (["k1"], 3397, (1, 5, 69)),
        (["42"], 1693, (1, 5, 157)),
        (["a", "b"], 4066, (2, 2, 226)),
        (["日本"], 835078, (2, 6, 6)),
        (["😀"], 1772930, (2, 2, 130)),
        (["user-123"], -267697841, (3, 7, 79)),
        ([None], 31, (3, 7, 31)),
        ([""], 31, (3, 7, 31)),
    ],
)
def test_known_vectors(key: Key, signed: int, buckets: tuple[int, int, int]) -> None:
    assert list_hash(key) == signed % 2**32
    assert tuple(bucket(key, count) for count in (4, 8, 256)) == buckets


texts = st.one_of(st.none(), st.text(), st.text(alphabet="aé日😀\U0010ffff\0", max_size=40))


@given(rows=st.lists(st.tuples(texts, texts), max_size=30), count=st.integers(1, 300), skip=st.integers(0, 3))
def test_many_at_once_are_as_one_by_one(rows: list[tuple[str | None, str | None]], count: int, skip: int) -> None:
    columns = [pa.array([row[at] for row in rows], pa.string()).slice(skip) for at in (0, 1)]
    expected = [(list_hash(list(row)) & 0x7FFFFFFF) % count for row in rows[skip:]]
    assert bucket_ids_of_texts(columns, count).to_pylist() == expected


@given(units=st.integers(0, 5), chars=st.lists(st.sampled_from("aé日\uffff\0"), max_size=60), skip=st.integers(0, 2))
def test_texts_of_one_length_are_as_one_by_one(units: int, chars: list[str], skip: int) -> None:
    """Of so many code units, which are of one to three bytes."""
    texts = ["".join(chars[at : at + units]) for at in range(0, len(chars) - units, max(units, 1))]
    texts.append("😀" * (units // 2) + "x" * (units % 2))
    found = string_hashes(pa.array(texts, pa.string()).slice(skip))
    assert found.tolist() == [(list_hash([text]) - 31) % 2**32 for text in texts[skip:]]


def test_every_string_layout_hashes_alike() -> None:
    values = ["", "a", None, "日本😀", "x" * 1000]
    plain = string_hashes(pa.array(values, pa.string())).tolist()
    assert plain == [(list_hash([value]) - 31) % 2**32 for value in values]
    assert string_hashes(pa.array(values, pa.large_string())).tolist() == plain
    assert string_hashes(pa.array([], pa.string())).tolist() == []
    assert string_hashes(pa.nulls(2, pa.string())).tolist() == [0, 0]


def test_columns_of_a_table_hash_by_their_text() -> None:
    table = pa.table({"id": pa.array([42, 7]), "name": ["a", None]})
    assert bucket_ids(table, ["id"], 256)[0].as_py() == 157
    assert bucket_ids(table, ["id", "name"], 256).to_pylist() == [bucket(["42", "a"], 256), bucket(["7", None], 256)]
    with pytest.raises(InvalidRequest, match=r"'other' is missing from data of 2 rows"):
        bucket_ids(table, ["other"], 4)


@pytest.mark.parametrize("count", [0, -1, 100_000_000])
def test_impossible_bucket_counts_are_refused(count: int) -> None:
    with pytest.raises(InvalidRequest, match=r"hoodie\.bucket\.index\.num\.buckets"):
        bucket(["a"], count)
    with pytest.raises(InvalidRequest, match="at least one field"):
        bucket_ids_of_texts([], 4)


def test_file_ids_name_their_bucket() -> None:
    assert bucket_file_id(5) == "00000005-0000-0000-0000-000000000000-0"
    assert [bucket_of_file_id(bucket_file_id(number)) for number in (0, 255, 99_999_999)] == [0, 255, 99_999_999]
    assert bucket_of_file_id("00000005-1b2c-4d5e-8f90-a1b2c3d4e5f6-0") == 5
    assert bucket_of_file_id("6e1d5cc4-c487-487d-abbe-fe9b30b1c0cc-0") is None
    for impossible in (-1, 100_000_000):
        with pytest.raises(InvalidRequest, match="8 digits"):
            bucket_file_id(impossible)


@pytest.mark.parametrize(
    ("hashes", "buckets", "expected"),
    [
        ([5, 10, 14], [1, 2, 2], [4]),
        ([8, 16], [0, 0], [1, 2, 4, 8]),
        ([9, 17], [1, 1], [2, 4, 8]),
        ([5, 6], [1, 1], []),
        ([1, 2], [1, 2], []),
        ([], [], []),
    ],
)
def test_the_number_of_buckets_follows_from_where_rows_lie(
    hashes: list[int], buckets: list[int], expected: list[int]
) -> None:
    assert possible_bucket_counts(np.array(hashes, np.uint32), buckets) == expected
