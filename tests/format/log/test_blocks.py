"""Contents of log files: rows, deletes with ordering values of every type, commands."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import struct
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelatch.errors import CorruptTable, InvalidRequest
from lakelatch.format.avro import arrow_to_avro, avro_to_arrow, with_meta_columns
from lakelatch.format.log.blocks import Deletes, encode_log_file, read_log_file
from lakelatch.format.log.delete_block import decode_deletes, encode_deletes
from lakelatch.format.log.framing import (
    AVRO_BLOCK,
    CDC_BLOCK,
    COMMAND_BLOCK,
    CORRUPT_BLOCK,
    DELETE_BLOCK,
    HFILE_BLOCK,
    INSTANT_TIME,
    PARQUET_BLOCK,
    SCHEMA,
    TARGET_INSTANT_TIME,
    encode_block,
    read_blocks,
)
from lakelatch.format.merge.ordering import comparable

COMMAND_BLOCK_TYPE = 3  # Hudi's ordinal of this header, which our reader does not need
INSTANT = "20260101000000001"
SCHEMA_OF_DATA = pa.schema([("id", pa.string()), ("v", pa.int64()), ("t", pa.timestamp("us", "UTC"))])
AVRO = arrow_to_avro(SCHEMA_OF_DATA, "made")
ROWS = pa.Table.from_pylist(
    [
        {"_hoodie_record_key": "a", "id": "a", "v": 1, "t": dt.datetime(1960, 1, 1, tzinfo=dt.timezone.utc)},
        {"_hoodie_record_key": "b", "id": "b", "v": None, "t": None},
    ],
    schema=with_meta_columns(SCHEMA_OF_DATA),
)
MOMENT = dt.datetime(2024, 1, 2, 3, 4, 5, 678901)


@pytest.mark.parametrize("block_format", ["parquet", "avro"])
def test_rows_and_deletes_come_back(block_format: str) -> None:
    deletes = Deletes(pa.array(["c", "d"]), "p", pa.array([5, 6]))
    data = encode_log_file(INSTANT, AVRO, ROWS, deletes, block_format)
    rows, removed = read_log_file(data, "log")
    assert rows.records is not None and removed.deletes is not None
    assert (rows.instant, removed.instant) == (INSTANT, INSTANT)
    assert rows.records.to_pylist() == ROWS.to_pylist()
    assert rows.records.schema.types == ROWS.schema.types
    assert removed.deletes.keys.to_pylist() == ["c", "d"]
    assert removed.deletes.partition == "p"
    assert removed.deletes.ordering is not None and removed.deletes.ordering.to_pylist() == [5, 6]


def test_columns_whose_values_hardly_repeat_have_no_dictionary() -> None:
    count = 3000
    values = {"_hoodie_record_key": [f"key-{number}" for number in range(count)], "v": [1, 2, 3] * (count // 3)}
    names = with_meta_columns(SCHEMA_OF_DATA)
    columns = {field.name: pa.array(values.get(field.name, [None] * count), field.type) for field in names}
    columns["id"] = columns["_hoodie_record_key"]
    rows = pa.table(columns, schema=names)
    data = encode_log_file(INSTANT, AVRO, rows, None)
    (block,) = read_blocks(data, "log")
    found = pq.read_metadata(io.BytesIO(bytes(block.content))).row_group(0)
    chunks = [found.column(place) for place in range(found.num_columns)]
    without = {chunk.path_in_schema for chunk in chunks if not any("DICTIONARY" in one for one in chunk.encodings)}
    assert without == {"_hoodie_record_key", "id"}
    assert next(iter(read_log_file(data, "log"))).records == rows


@pytest.mark.parametrize(("block_format", "kind"), [("parquet", PARQUET_BLOCK), ("avro", AVRO_BLOCK)])
def test_headers_carry_the_instant_and_the_schema_with_meta_columns(block_format: str, kind: int) -> None:
    data = encode_log_file(INSTANT, AVRO, ROWS, Deletes(pa.array(["c"]), ""), block_format)
    blocks = list(read_blocks(data, "log"))
    assert [block.kind for block in blocks] == [kind, DELETE_BLOCK]
    for block in blocks:
        assert block.instant == INSTANT
        assert avro_to_arrow(block.headers[SCHEMA]) == with_meta_columns(SCHEMA_OF_DATA)


@pytest.mark.parametrize(
    ("ordering", "branch"),
    [
        (pa.array([False, True]), 1),
        (pa.array([1, -5], pa.int8()), 2),
        (pa.array([1, -5], pa.int32()), 2),
        (pa.array([1, -5], pa.int64()), 3),
        (pa.array([1.5, -5], pa.float32()), 4),
        (pa.array([1.5, -5], pa.float64()), 5),
        (pa.array([b"a", b""]), 6),
        (pa.array(["a", "日"]), 7),
        (pa.array([dt.date(2024, 1, 1), dt.date(1900, 1, 1)]), 2),
        (pa.array([decimal.Decimal("-123.45"), decimal.Decimal("999.00")], pa.decimal128(10, 2)), 9),
        (pa.array([MOMENT, dt.datetime(1900, 1, 1)], pa.timestamp("us")), 3),
        (pa.array([MOMENT, dt.datetime(1900, 1, 1)], pa.timestamp("us", "UTC")), 3),
        (pa.array([MOMENT.replace(microsecond=678000), dt.datetime(1900, 1, 1)], pa.timestamp("ms", "UTC")), 3),
    ],
)
def test_ordering_values_of_every_type_come_back(ordering: pa.Array, branch: int) -> None:
    (content,) = encode_deletes(Deletes(pa.array(["k", "l"]), "", ordering))
    assert content[8 + 1 + 3 + 2] == 2 * branch  # after the counts: list length, key, empty partition; zigzag
    found = decode_deletes(content).ordering
    assert found is not None
    assert found.cast(ordering.type).to_pylist() == ordering.to_pylist()


def _delete_of_java(branch: int, value: bytes) -> bytes:
    """A block with one delete, of the key "k", whose ordering value is one of the union's branches."""
    body = b"\x02" + b"\x02\x02k" + b"\x02\x00" + bytes([2 * branch]) + value + b"\x00"
    return struct.pack(">ii", 3, len(body)) + body


@pytest.mark.parametrize(
    ("branch", "value", "kind", "expected"),
    [
        (
            8,
            b"\x04",
            pa.date32(),
            dt.date(1970, 1, 3),
        ),  # DateWrapper and TimestampMicrosWrapper: earlier versions of ours
        (8, b"\x00", pa.date32(), dt.date(1970, 1, 1)),
        (11, b"\x80\x89\x7a", pa.timestamp("us", "UTC"), dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.timezone.utc)),
        (11, b"\x80\x89\x7a", pa.timestamp("ms", "UTC"), dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.timezone.utc)),
        (3, b"\x80\x89\x7a", pa.timestamp("us", "UTC"), dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.timezone.utc)),
        (3, b"\xd0\x0f", pa.timestamp("ms", "UTC"), dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.timezone.utc)),
        (2, b"\x04", pa.date32(), dt.date(1970, 1, 3)),
        (2, b"\x04", pa.int64(), 2),
    ],
)
def test_deletes_of_all_writers_compare_with_rows(branch: int, value: bytes, kind: pa.DataType, expected: Any) -> None:
    found = decode_deletes(_delete_of_java(branch, value)).ordering
    assert found is not None
    rows = pa.array([expected], kind)
    assert comparable(found, kind).to_pylist() == comparable(rows, kind).to_pylist()


@pytest.mark.parametrize("values", ["02 04 0406 0e00 00", "02 02 1804 00", "00"])
def test_deletes_ordered_by_several_fields_are_refused(values: str) -> None:
    """Java's array of values: an int and an empty text, a local date, none at all."""
    with pytest.raises(CorruptTable, match="ArrayWrapper, several fields"):
        decode_deletes(_delete_of_java(12, bytes.fromhex(values)))


def test_deletes_without_an_ordering_value_are_hudis_default() -> None:
    (content,) = encode_deletes(Deletes(pa.array(["k"]), "p"))
    assert content == struct.pack(">ii", 3, 10) + b"\x02\x02\x02k\x02\x02p\x04\x00\x00"
    assert decode_deletes(content).ordering is None


def test_deletes_with_and_without_values_are_kept_apart() -> None:
    deletes = Deletes(pa.array(["a", "b", "c"]), "", pa.array([1, None, 3]))
    default, valued = (decode_deletes(content) for content in encode_deletes(deletes))
    assert (default.keys.to_pylist(), default.ordering) == (["b"], None)
    assert valued.ordering is not None
    assert (valued.keys.to_pylist(), valued.ordering.to_pylist()) == (["a", "c"], [1, 3])
    assert len(encode_deletes(Deletes(pa.array(["a"]), "", pa.nulls(1, pa.int64())))) == 1


def test_an_int_of_zero_cannot_be_told_from_the_default() -> None:
    (content,) = encode_deletes(Deletes(pa.array(["a", "b"]), "", pa.array([0, 7], pa.int32())))
    found = decode_deletes(content).ordering
    assert found is not None and found.to_pylist() == [None, 7]


@pytest.mark.parametrize(
    ("ordering", "message"),
    [
        (pa.array([[1]]), r"type list.* cannot order deletes"),
        (pa.array([decimal.Decimal(10**15)]), "more than 15 digits before the point"),
        (pa.array([decimal.Decimal(1).scaleb(-16)]), "cannot order deletes"),
    ],
)
def test_ordering_values_that_deletes_cannot_hold(ordering: pa.Array, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        encode_deletes(Deletes(pa.array(["k"]), "", ordering))


def test_ordering_values_of_mixed_types_are_corrupt() -> None:
    (ints,) = encode_deletes(Deletes(pa.array(["a"]), "", pa.array([1])))
    (texts,) = encode_deletes(Deletes(pa.array(["b"]), "", pa.array(["x"])))
    body = b"\x04" + ints[9:-1] + texts[9:]
    with pytest.raises(CorruptTable, match=r"LongWrapper, StringWrapper"):
        decode_deletes(struct.pack(">ii", 3, len(body)) + body)


def test_commands_name_the_instant_that_they_take_back() -> None:
    headers = {INSTANT_TIME: INSTANT, TARGET_INSTANT_TIME: "20260101000000000", COMMAND_BLOCK_TYPE: "0"}
    (found,) = read_log_file(encode_block(COMMAND_BLOCK, headers, b""), "log")
    assert (found.rolled_back, found.records, found.deletes) == ("20260101000000000", None, None)


@pytest.mark.parametrize("kind", [CORRUPT_BLOCK, CDC_BLOCK])
def test_blocks_without_rows_are_passed_over(kind: int) -> None:
    assert list(read_log_file(encode_block(kind, {INSTANT_TIME: INSTANT}, b"x"), "log")) == []


@pytest.mark.parametrize(
    ("kind", "headers", "content"),
    [
        (PARQUET_BLOCK, {}, b"no parquet"),
        (AVRO_BLOCK, {}, struct.pack(">ii", 3, 0)),
        (AVRO_BLOCK, {SCHEMA: AVRO}, struct.pack(">ii", 2, 0)),
        (AVRO_BLOCK, {SCHEMA: AVRO}, struct.pack(">iii", 3, 1, 50)),
        (AVRO_BLOCK, {SCHEMA: AVRO}, struct.pack(">iii", 3, 1, 1) + b"\x02"),
        (AVRO_BLOCK, {SCHEMA: "{}"}, struct.pack(">ii", 3, 0)),
        (DELETE_BLOCK, {}, struct.pack(">ii", 3, 99)),
        (DELETE_BLOCK, {}, b""),
    ],
)
def test_contents_that_do_not_decode_are_corrupt(kind: int, headers: dict[int, str], content: bytes) -> None:
    with pytest.raises(CorruptTable):
        list(read_log_file(encode_block(kind, {INSTANT_TIME: INSTANT, **headers}, content), "log"))


def test_what_cannot_be_written_or_read_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="nothing to write"):
        encode_log_file(INSTANT, AVRO, ROWS.slice(0, 0), Deletes(pa.array([], pa.string()), ""))
    with pytest.raises(InvalidRequest, match="neither parquet nor avro"):
        encode_log_file(INSTANT, AVRO, ROWS, None, "orc")
    with pytest.raises(InvalidRequest, match="HFile"):
        list(read_log_file(encode_block(HFILE_BLOCK, {}, b""), "log"))


def test_java_reads_our_avro_records_by_their_schema() -> None:
    """The record bytes are plain Avro under the block's schema, one length before each."""
    (block,) = read_blocks(encode_log_file(INSTANT, AVRO, ROWS, None, "avro"), "log")
    import io
    import json

    schema: Any = fastavro.parse_schema(json.loads(block.headers[SCHEMA]))
    content = bytes(block.content)
    version, count, size = struct.unpack_from(">iii", content)
    assert (version, count) == (3, 2)
    record = fastavro.schemaless_reader(io.BytesIO(content[12 : 12 + size]), schema, None)
    assert isinstance(record, dict) and (record["id"], record["v"]) == ("a", 1)


def test_a_command_that_does_not_say_what_it_rolls_back_is_refused() -> None:
    headers = {INSTANT_TIME: INSTANT, SCHEMA: AVRO, COMMAND_BLOCK_TYPE: "0"}
    with pytest.raises(CorruptTable, match="does not say what it rolls back"):
        list(read_log_file(encode_block(COMMAND_BLOCK, headers, b""), "log"))
