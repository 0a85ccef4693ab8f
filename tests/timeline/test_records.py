"""Files of the timeline are read as the Avro library reads them, at less cost where they are as ours are."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from typing import Any

import fastavro
import pytest

from lakelatch.errors import CorruptTable
from lakelatch.timeline import records
from lakelatch.timeline.metadata import CommitMetadata, WriteStat

SCHEMA = {
    "name": "Small",
    "type": "record",
    "fields": [{"name": "number", "type": "long"}, {"name": "text", "type": ["null", "string"]}],
}
RECORD = {"number": 7, "text": "seven"}


def container(rows: Iterable[Any] = (RECORD,), codec: str = "null", **more: Any) -> bytes:
    sink = io.BytesIO()
    fastavro.writer(sink, SCHEMA, list(rows), codec=codec, sync_marker=bytes(range(16)), **more)
    return sink.getvalue()


def with_longer_block(data: bytes) -> bytes:
    """The same with a byte more in its block than its record has."""
    body = data.rindex(b"\x0e\x02\x0aseven")  # 7, the second branch, five letters
    return data[: body - 1] + bytes([data[body - 1] + 2]) + data[body:-16] + b"\x00" + data[-16:]


def answer(data: bytes) -> object:
    """What a file holds; "refused" for one that does not hold one record."""

    def build(record: Mapping[str, Any]) -> object:
        return dict(record)

    try:
        return records.decode(data, "", "a small record", ("number",), build)
    except CorruptTable:
        return "refused"


def answer_of_library(data: bytes) -> object:
    try:
        found = list(fastavro.reader(io.BytesIO(data)))
    except Exception:
        return "refused"
    whole = len(found) == 1 and isinstance(found[0], dict) and "number" in found[0]
    return found[0] if whole else "refused"


@pytest.mark.parametrize(
    "data",
    [
        container(),
        container(codec="deflate"),
        container(metadata={"more": "of it"}),
        container([]),
        container([RECORD, RECORD]),
        container([RECORD, RECORD], sync_interval=1),
        container() + container(),
        container()[:-1] + b"\x00",
        container() + b"\x00",
        with_longer_block(container()),
        b"Obj\x01",
        b"Obj\x01" + bytes(100),
        b"Obj\x01" + b"\xff" * 100,
        b"",
    ],
)
def test_a_file_holds_what_the_library_finds_in_it(data: bytes) -> None:
    assert answer(data) == answer_of_library(data)


def test_a_file_with_any_bit_changed_or_cut_anywhere_holds_what_the_library_finds_in_it() -> None:
    data = container()
    for at, byte in enumerate(data):
        for changed in (byte ^ 1, byte ^ 0x80):
            found = data[:at] + bytes([changed]) + data[at + 1 :]
            assert answer(found) == answer_of_library(found), (at, changed)
        assert answer(data[:at]) == answer_of_library(data[:at]) == "refused"


def test_the_schema_of_files_that_are_alike_is_parsed_once() -> None:
    stats = (WriteStat("p", "group", "p/group_0_1.log", file_size_bytes=1),)
    files = [CommitMetadata(stats, "UPSERT", {"number": str(number)}).to_avro() for number in range(5)]
    CommitMetadata.from_avro(files[0])
    before = records._parsed.cache_info()
    assert [CommitMetadata.from_avro(data).extra["number"] for data in files] == list("01234")
    after = records._parsed.cache_info()
    assert after.hits > before.hits and after.misses == before.misses
