"""A table's files for the checker: bytes by path, from a folder or from any other mapping."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import fastavro

_HEADER = fastavro.parse_schema(
    {
        "type": "record",
        "name": "header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": 16}},
        ],
    }
)


class Folder(Mapping[str, bytes]):
    """The files below a folder that does not change any more, by their paths relative to it, with `/`."""

    def __init__(self, root: Path) -> None:
        found = root.rglob("*") if root.is_dir() else ()
        self._paths = {path.relative_to(root).as_posix(): path for path in sorted(found) if path.is_file()}

    def __getitem__(self, path: str) -> bytes:
        return self._paths[path].read_bytes()

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


@lru_cache(maxsize=256)  # several checks ask for each
def avro_record(data: bytes) -> Any:
    """The one record of an Avro container file, which nobody may change.

    Errors: `ValueError`, and whatever fastavro raises.
    """
    source = io.BytesIO(data)
    header: Any = fastavro.schemaless_reader(source, _HEADER, None)
    if header["meta"].get("avro.codec", b"null") != b"null":
        (record,) = fastavro.reader(io.BytesIO(data))
        return record
    if fastavro.schemaless_reader(source, "long", None) != 1:
        raise ValueError("it does not hold one record")
    fastavro.schemaless_reader(source, "long", None)  # the block's length
    record = fastavro.schemaless_reader(source, _schema(header["meta"]["avro.schema"]), None)
    if source.read() != header["sync"]:
        raise ValueError("it does not end with its block")
    return record


@lru_cache(maxsize=16)  # parsing them would take most of the time that a small table takes
def _schema(text: bytes) -> Any:
    return fastavro.parse_schema(json.loads(text))
