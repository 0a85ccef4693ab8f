"""A file that is copied, under another instant or another file id, is the one that was written, or is not committed.

A copy gets a checksum of its own, so a byte that has changed in its source would never be found again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from live_table import SCHEMA, LiveTable, Row
from table import write_arrow

from lakelatch.engine.options.write import BLOCK_FORMAT, OPERATION
from lakelatch.errors import CorruptTable
from lakelatch.failpoints import calling
from lakelatch.transactions.base.settings import NON_BLOCKING, OPTIMISTIC

OURS: list[Row] = [(1, 5, "ours-one"), (2, 5, "ours-two"), (3, 5, "ours-three")]
PLACES = 8  # of the source, at each of which one byte is changed
RETRIES = "hoodie.write.num.retries.on.conflict.failures"


class Copied:
    """A write whose files are copied before they are committed; `changing` changes one byte of them before that."""

    def __init__(self, root: Path, mode: str, operation: str, first: list[Row], meanwhile: str, **more: Any) -> None:
        self.table = LiveTable(root, mode=mode, buckets=1, **more)
        self.operation, self.meanwhile = operation, meanwhile
        self.options = {**self.table.options, OPERATION: operation, RETRIES: 2}
        if first:
            self.table.write(first)
        self.source = ""

    def write(self) -> None:
        values = [(*row, "p") for row in OURS]
        columns = [list(column) for column in zip(*values, strict=True)]
        data = pa.Table.from_arrays(columns, schema=SCHEMA)
        write_arrow(str(self.table.root), data, self.options, by_tasks=self.operation == "bulk_insert")

    @contextmanager
    def changing(self, change: Callable[[bytes], bytes]) -> Iterator[None]:
        """`change` is given the source when it was written and has not been copied."""
        there = set(self.table.storage.list("p").files)
        other = self.table.begin(self.meanwhile)  # which was requested first, and completes while the write is at work
        waiting = [lambda: other.put("p", [(9, 9, "theirs")]).commit()]

        at_work = "mark.after" if self.operation == "bulk_insert" else "data.after"

        def step(point: str) -> None:
            if point == at_work and waiting:
                waiting.pop()()
            elif point != at_work and not waiting and not self.source:
                self._change(change, there, other.instant)

        with calling(step, [at_work, "begin.after_open", "relocate.after_reopen"]):
            yield

    def _change(self, change: Callable[[bytes], bytes], there: set[str], other: str) -> None:
        storage = self.table.storage
        for name in storage.list("p").files:
            if not name.startswith(".hoodie") and name not in there and f"_{other}" not in name:
                self.source = f"p/{name}"
                storage.put(self.source, change(storage.read(self.source)))


MAKERS: dict[str, Callable[[Path], Copied]] = {
    "logs, rebased": lambda root: Copied(root, OPTIMISTIC, "upsert", [(1, 1, "old")], "upsert"),
    "Avro logs, rebased": lambda root: Copied(
        root, OPTIMISTIC, "upsert", [(1, 1, "old")], "upsert", **{BLOCK_FORMAT: "avro"}
    ),
    "logs, relocated": lambda root: Copied(root, NON_BLOCKING, "upsert", [(1, 1, "old")], "insert_overwrite"),
    "a base file, rebased as logs": lambda root: Copied(root, NON_BLOCKING, "bulk_insert", [], "insert_overwrite"),
    "a base file, rebased": lambda root: Copied(root, OPTIMISTIC, "bulk_insert", [], "upsert"),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_no_byte_that_has_changed_is_copied(tmp_path: Path, kind: str) -> None:
    unchanged = MAKERS[kind](tmp_path / "unchanged")
    with unchanged.changing(bytes):
        unchanged.write()
    expected = unchanged.table.agreed()
    assert unchanged.source and ("p", 3, 5, "ours-three") in expected and ("p", 9, 9, "theirs") in expected
    found = 0
    for place in range(PLACES):
        copied = MAKERS[kind](tmp_path / f"t{place}")
        with copied.changing(lambda data, place=place: _changed(data, place)):  # type: ignore[misc]
            try:
                copied.write()
            except CorruptTable as error:
                assert copied.source in str(error)
                found += 1
                assert not {row[3] for row in copied.table.read()} & {row[2] for row in OURS}
            else:
                assert copied.table.agreed() == expected, f"byte {place} of {PLACES} was believed"
        assert copied.source, "nothing was changed"
    assert found >= PLACES - 1, "a byte of the checksum's own may be without effect, and no other"


def _changed(data: bytes, place: int) -> bytes:
    at = len(data) * place // PLACES + 7
    return data[:at] + bytes([data[at] ^ 0x21]) + data[at + 1 :]
