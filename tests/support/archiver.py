"""Archives instants as Java's `LSMTimelineWriter` does: level file, manifest, version, and only then the deletions.

Each file is created and never overwritten, as Java's are: a late request of an earlier run changes nothing.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakelatch.errors import Unavailable
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.timeline.history.level_file import LEVEL_FILE_SCHEMA
from lakelatch.timeline.history.manifest import HISTORY_FOLDER, VERSION_PATH, manifest_path
from lakelatch.timeline.history.writer import HistoryRow
from lakelatch.timeline.instant import COMPLETED, REQUESTED, TIMELINE_FOLDER, Instant
from lakelatch.timeline.snapshot import Snapshot


class NameTaken(Unavailable):
    """An earlier run has left a file of this name, with other bytes."""


@dataclass(frozen=True)
class Archiver:
    """One table's archiver. `step` is called with the name of each step once it is done: tests stop it there."""

    storage: Storage
    step: Callable[[str], None] = lambda name: None

    def archive(self, requested: Iterable[str]) -> str:
        """Takes these instants off the active timeline; the name of the level file that has them."""
        timeline, wanted = Snapshot.load(self.storage), set(requested)
        rows = []
        for instant in timeline.completed:
            if instant.requested in wanted:
                rows.append(self._row(instant, timeline))
        name = self.put_level_file(rows)
        self.step("level file")
        self.add_version([*self.files_now(), name])
        for instant in sorted(timeline.instants, key=lambda one: (one.state == COMPLETED, one.requested)):
            if instant.requested in wanted:
                self.storage.delete(instant.path)
                self.step("deletion")
        return name

    def merge(self, names: Sequence[str]) -> str:
        """Rewrites level files into one of the next level, and removes them with their old manifests."""
        rows = [row for name in names for row in self.rows_of(name)]
        merged = self.put_level_file(rows, level=1)
        self.add_version([*(name for name in self.files_now() if name not in names), merged])
        self.step("merged")
        for version in range(1, self.version()):
            self.storage.delete(manifest_path(version))
        for name in names:
            self.storage.delete(f"{HISTORY_FOLDER}/{name}")
        return merged

    def put_level_file(self, rows: list[dict[str, Any]], level: int = 0) -> str:
        rows = sorted(rows, key=lambda row: row["instantTime"])
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows, LEVEL_FILE_SCHEMA), sink)
        name = f"{rows[0]['instantTime']}_{rows[-1]['instantTime']}_{level}.parquet"
        self._create(f"{HISTORY_FOLDER}/{name}", sink.getvalue())
        return name

    def rows_of(self, name: str) -> list[dict[str, Any]]:
        data = self.storage.read(f"{HISTORY_FOLDER}/{name}")
        return pq.read_table(pa.BufferReader(data)).to_pylist()  # type: ignore[no-any-return]

    def add_version(self, names: Iterable[str]) -> int:
        version = self.version() + 1
        files = [
            {"fileName": name, "fileLen": self.storage.stat(f"{HISTORY_FOLDER}/{name}").size_bytes} for name in names
        ]
        self._create(manifest_path(version), json.dumps({"files": files}).encode())
        self.step("manifest")
        self.storage.delete(VERSION_PATH)
        self.step("no version")
        self._create(VERSION_PATH, str(version).encode())
        self.step("version")
        return version

    def version(self) -> int:
        try:
            return int(self.storage.read(VERSION_PATH))
        except NotFound:
            return 0

    def files_now(self) -> list[str]:
        version = self.version()
        found = json.loads(self.storage.read(manifest_path(version)))["files"] if version else []
        return [file["fileName"] for file in found]

    def _create(self, path: str, data: bytes) -> None:
        if not self.storage.put_if_absent(path, data) and self.storage.read(path) != data:
            raise NameTaken(f"{path} is there with other bytes: another run of an archiver has written it")

    def _row(self, instant: Instant, timeline: Snapshot) -> dict[str, Any]:
        plans = (one for one in timeline.instants if one.requested == instant.requested and one.state == REQUESTED)
        plan = next((self.storage.read(one.path) for one in plans), b"")
        metadata = self.storage.read(instant.path)
        return HistoryRow(instant.requested, instant.completion or "", instant.action, metadata, plan or None).values()


def row(requested: str, completion: str, action: str = "deltacommit", metadata: bytes = b"m") -> dict[str, Any]:
    """A row of a level file."""
    return HistoryRow(requested, completion, action, metadata, None).values()


def remove_from_timeline(storage: Storage, requested: Iterable[str]) -> None:
    """Removes instants and puts them nowhere."""
    gone = set(requested)
    for instant in Snapshot.load(storage).instants:
        if instant.requested in gone:
            storage.delete(f"{TIMELINE_FOLDER}/{instant.file_name}")
