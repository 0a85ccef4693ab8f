"""What has no checksum, as another writer made it: whatever its bytes are, reading ends in a value or in one error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from damages import DAMAGES, NUMBER, Damage, one_of, tried
from fuzzed_table import Made, unchecksummed
from hypothesis import given
from hypothesis import strategies as st

from lakelatch.errors import CorruptTable, InvalidRequest, LakelatchError
from lakelatch.format.log.blocks import read_log_file
from lakelatch.format.parquet import read_parquet
from lakelatch.storage import MemoryStorage
from lakelatch.storage.checksums import CHECKSUM_KEY, NO_CHECKSUM, json_object, open_checksummed_json, verify_checksum
from lakelatch.timeline.log.events import Event, slot_events
from lakelatch.timeline.metadata import CommitMetadata, CompactionPlan, RollbackPlan
from lakelatch.timeline.properties_file import PROPERTIES_PATH
from lakelatch.timeline.table_config import load_table_config

_CHECKSUM = len(CHECKSUM_KEY) + len(NO_CHECKSUM) + 24  # around a checksum: damage there leaves a file without one


def _config(data: bytes, path: str) -> object:
    storage = MemoryStorage("fuzzed-properties")
    storage.put(PROPERTIES_PATH, data)
    return load_table_config(storage)


READERS: dict[str, tuple[Callable[[bytes, str], object], str]] = {
    "log file": (lambda data, path: list(read_log_file(data, path)), ".log.1_"),
    "log file, some columns": (
        lambda data, path: list(read_log_file(data, path, ["_hoodie_record_key", "ts"])),
        ".log.1_",
    ),
    "base file": (read_parquet, ".parquet"),
    "commit": (CommitMetadata.from_avro, ".commit"),
    "replace commit": (CommitMetadata.from_avro, ".replacecommit"),
    "compaction plan": (CompactionPlan.from_avro, ".compaction.requested"),
    "rollback plan": (RollbackPlan.from_avro, ".rollback.requested"),
    "properties": (_config, "hoodie.properties"),
}


@pytest.mark.parametrize("kind", READERS)
@given(file=NUMBER, damage=DAMAGES)
@tried(60)
def test_bytes_without_a_checksum(made: Made, kind: str, file: int, damage: Damage) -> None:
    reader, mark = READERS[kind]
    path = one_of([path for path in made.files if mark in path and made.files[path]], file)
    damaged = damage.apply(unchecksummed(made.files)[path], made.files)
    try:
        reader(damaged, path)
    except (CorruptTable, InvalidRequest) as error:
        assert path in str(error)


def _slot(data: bytes, path: str) -> tuple[Event, ...]:
    return slot_events(data, int(path.rpartition("/")[2].partition(".")[0]))


CHECKSUMMED: dict[str, tuple[Callable[[bytes, str], object], str]] = {
    "slot": (_slot, "/log/00000000000000000012.json"),
    "commit": (verify_checksum, ".replacecommit"),
    "plan": (verify_checksum, ".compaction.requested"),
    "log file": (verify_checksum, "_2147483646-0-0"),
    "base file": (verify_checksum, ".parquet"),
}


@pytest.mark.parametrize("kind", CHECKSUMMED)
def test_every_flipped_byte_and_every_cut_of_a_file_with_a_checksum_is_seen(made: Made, kind: str) -> None:
    reader, mark = CHECKSUMMED[kind]
    path = next(path for path in sorted(made.files) if path.endswith(mark))
    data = made.files[path]
    reader(data, path)
    assert _believed(reader, path, (data[:size] for size in range(len(data)) if size > data.find(b"crc32:") + 14)) == 0
    flipped = (data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :] for at in range(len(data)))
    assert _believed(reader, path, flipped) <= (0 if kind == "slot" else _CHECKSUM)


def _believed(reader: Callable[[bytes, str], object], path: str, damaged: Any) -> int:
    believed = 0
    for data in damaged:
        try:
            reader(data, path)
            believed += 1
        except LakelatchError:
            continue
    return believed


@pytest.mark.parametrize("kind", ["commit", "plan", "log file", "base file"])
def test_a_file_with_a_checksum_is_no_other_file(made: Made, kind: str) -> None:
    path = next(path for path in sorted(made.files) if path.endswith(CHECKSUMMED[kind][1]))
    with pytest.raises(CorruptTable, match=r"other\.name is not as it was written"):
        verify_checksum(made.files[path], "p/other.name")


@given(st.binary() | st.text().map(str.encode))
@tried(100)
def test_no_bytes_have_a_checksum_by_chance(data: bytes) -> None:
    assert open_checksummed_json(data) is None
    assert json_object(data) is None or json_object(data) == {}


BROKEN = [b"[" * 99_999, b'{"a": ' * 99_999, b"9" * 5000, b'{"a": 1%s}' % (b"0" * 5000), b"\xff"]


@pytest.mark.parametrize("data", BROKEN, ids=range(5))
def test_json_that_breaks_its_parser_is_no_object(data: bytes) -> None:
    assert json_object(data) is None
