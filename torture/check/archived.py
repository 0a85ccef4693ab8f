"""Archived instants, read with pyarrow alone: from the level files that the current manifest names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

HISTORY = ".hoodie/timeline/history"
_MANIFEST = "manifest_"


@dataclass(frozen=True)
class Archived:
    """A completed instant in the history, with the bytes of its file and of its plan."""

    instant: str
    completion: str
    action: str
    metadata: bytes
    plan: bytes

    @property
    def name(self) -> str:
        """The name of its file on the active timeline."""
        return f"{self.instant}_{self.completion}.{self.action}"


def read_archived(files: Mapping[str, bytes], damage: list[str]) -> Iterator[Archived]:
    """Every instant of the history, once. What cannot be read is added to `damage`."""
    try:
        names = _level_files(files)
    except (ValueError, KeyError, TypeError) as error:
        damage.append(f"the manifest of the history cannot be read: {error}")
        return
    seen: set[str] = set()
    for name in names:
        path = f"{HISTORY}/{name}"
        if path not in files:
            damage.append(f"{path} is missing, and the manifest names it")
            continue
        try:
            found = _instants_in(files[path])
        except Exception as error:  # the library raises whatever the bytes provoke
            damage.append(f"{path} cannot be read: {type(error).__name__}: {error}")
            continue
        for one in found:
            if one.instant in seen:
                damage.append(f"{one.instant} is in the history twice")
            seen.add(one.instant)
            yield one


@lru_cache(maxsize=16)  # a table is looked at again while it changes, and these files never do
def _instants_in(data: bytes) -> tuple[Archived, ...]:
    rows = pq.read_table(pa.BufferReader(data)).to_pylist()
    return tuple(
        Archived(row["instantTime"], row["completionTime"], row["action"], row["metadata"] or b"", row["plan"] or b"")
        for row in rows
    )


def _level_files(files: Mapping[str, bytes]) -> list[str]:
    """Those of the manifest that `_version_` names, or of the greatest one."""
    prefix = f"{HISTORY}/{_MANIFEST}"
    versions = [int(path[len(prefix) :]) for path in files if path.startswith(prefix) and path[len(prefix) :].isdigit()]
    stated = files.get(f"{HISTORY}/_version_")
    if stated is None and not versions:
        return []
    version = int(stated) if stated is not None else max(versions)
    return [one["fileName"] for one in json.loads(files[f"{prefix}{version}"])["files"]]
