"""Writing the history: what comes of merging level files that are not in order."""

from __future__ import annotations

from lakelatch.storage.memory import MemoryStorage
from lakelatch.system import REAL_SYSTEM
from lakelatch.timeline.history.history import History
from lakelatch.timeline.history.level_file import read_rows
from lakelatch.timeline.history.manifest import load_manifest
from lakelatch.timeline.history.writer import HistoryRow, HistoryWriter

T = [f"202611221200{second:02}000" for second in range(10)]


def archived(*numbers: int) -> list[HistoryRow]:
    return [HistoryRow(T[one], f"{T[one]}9", "deltacommit", f"of {one}".encode(), None) for one in numbers]


def merged(storage: MemoryStorage, *files: list[HistoryRow]) -> list[tuple[str, bytes]]:
    """What the one level file holds that comes of these."""
    writer = HistoryWriter(storage, REAL_SYSTEM)
    for rows in files:
        writer.append(rows)
    assert writer.merge(len(files)) == 1
    (file,) = load_manifest(storage).files
    rows = read_rows(storage, file).to_pylist()
    assert (file.first, file.last, file.level) == (rows[0]["instantTime"], rows[-1]["instantTime"], 1)
    return [(row["instantTime"], row["metadata"]) for row in rows]


def test_level_files_that_overlap_are_merged_in_the_order_of_their_instants() -> None:
    found = merged(MemoryStorage("overlap"), archived(0, 3, 6), archived(1, 4, 5), archived(2, 7))
    assert found == [(T[one], f"of {one}".encode()) for one in range(8)]


def test_an_instant_that_two_level_files_have_is_merged_once() -> None:
    storage = MemoryStorage("twice")
    found = merged(storage, archived(0, 1, 2), archived(2, 3), archived(3, 4))
    assert found == [(T[one], f"of {one}".encode()) for one in range(5)]
    assert [one.requested for one in History.load(storage).instants()] == T[:5]
