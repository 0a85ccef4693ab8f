"""Whether file indexes, however old, give the slices that listing gives, and leave out no row by their statistics."""

from __future__ import annotations

import random  # noqa: TID251  (seeded)
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from unittest.mock import patch

import pyarrow as pa

from lakelatch.engine.read.pruning import Pruning
from lakelatch.engine.table.opening import open_table
from lakelatch.errors import LakelatchError
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.index.file_index import FileIndex
from lakelatch.format.merge.conditions import Bound, Condition, OneOf, Present, fulfilling
from lakelatch.format.merge.slice import read_slice
from lakelatch.format.slices import partitions
from lakelatch.format.slices.index_making import index_of
from lakelatch.format.slices.index_reading import current_index
from lakelatch.format.slices.table_view import TableView
from lakelatch.storage.contract import Storage
from lakelatch.timeline.table_config import TableConfig

Live = frozenset[tuple[str, str, str | None, tuple[str, ...]]]


@dataclass
class IndexChecks:
    """Makes an index of each moment that is looked at, keeps some of them, and holds all of those against listing.

    With `reads` it also looks at the rows of slices that their statistics rule out, for conditions on these columns.
    """

    storage: Storage
    config: TableConfig
    seed: int = 0
    kept_most: int = 8
    reads: tuple[str, ...] = ()
    kept: list[FileIndex] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._rows: dict[FileSlice, list[pa.Table] | None] = {}  # of slices as they are at this look

    def look(self) -> list[str]:
        """What is wrong now. Somebody must not be at work on the storage meanwhile."""
        view = TableView.load(self.storage, self.config)
        self._rows.clear()
        try:
            listed = view.latest(by_index=False)
        except LakelatchError:  # something is being taken back, or was damaged
            return []
        expected, problems = self.live(listed), []
        for index in self.kept:
            try:
                found = self._slices_by(index, view)
            except LakelatchError as error:  # and listing can read it
                problems.append(f"by the index of {index.moment} nobody can read: {error}")
                continue
            if found is None:
                self.counts["unused"] += 1
            else:
                self.counts["used"] += 1
                problems += self._rows_left_out(index, found)
                if self.live(found) != expected:
                    wrong = sorted(map(str, self.live(found) ^ expected))
                    problems.append(f"the index of {index.moment} is wrong at {view.whole.latest}: {wrong}")
        made = index_of(view, listed)
        if made is not None and view.whole.latest:
            self.kept.append(FileIndex.from_bytes(made.to_bytes(), made.path))
        if len(self.kept) > self.kept_most:  # most often a young one, so that they are of all ages
            del self.kept[max(self._chance.choices(range(self.kept_most), k=2))]
        return problems

    def live(self, slices: Iterable[FileSlice]) -> Live:
        """The files with something in them: names of failed attempts under completed instants are empty for good."""
        found = set()
        for one in slices:
            logs = tuple(name for name in one.log_files if self.storage.stat(one.path_of(name)).size_bytes)
            if logs or one.base_file:
                found.add((one.partition, one.file_id, one.base_file, logs))
        return frozenset(found)

    def _rows_left_out(self, index: FileIndex, slices: Iterable[FileSlice]) -> list[str]:
        """Rows that fulfil conditions, in slices that would not be read because of these."""
        if not self.reads:
            return []
        table, problems = open_table(self.storage), []
        for condition in self._conditions():
            pruning = Pruning(table, (condition,))
            there = [one for one in slices if not one.is_empty]
            held = set(pruning.held(there, index.statistics))
            for one in (one for one in there if one not in held):
                self.counts["left out"] += 1
                rows = self._rows_of(one, table.full_schema)
                if rows is None or any(fulfilling(part, [condition]).num_rows for part in rows):
                    problems.append(f"by the index of {index.moment} {condition} leaves out {one}")
        return problems

    def _rows_of(self, one: FileSlice, schema: pa.Schema) -> list[pa.Table] | None:
        """The rows of a slice, read once for all indexes and conditions; None if they cannot be read."""
        if one not in self._rows:
            try:
                self._rows[one] = list(read_slice(self.storage, one, schema, self.config, {}, schema.names))
            except LakelatchError:
                self._rows[one] = None
        return self._rows[one]

    def _conditions(self) -> Iterable[Condition]:
        """Some for each column, whose values are numbers from 0 on, or texts such as `v7`."""
        for column in self.reads:
            number = self._chance.choice([0, 1, 3, 5, 8, 13, 21, 34, 55])
            value = f"v{number % 10}" if column == "v" else number
            yield from (OneOf(column, (value,)), OneOf(column, (None,)), Present(column))
            yield Bound(column, self._chance.choice(["<", "<=", ">", ">="]), value)

    def _slices_by(self, index: FileIndex, view: TableView) -> tuple[FileSlice, ...] | None:
        """The slices by this index, as the product reads them; None if it does not use it."""
        self.storage.put(index.path, index.to_bytes())
        try:
            if current_index(view.whole) is None:
                return None
            with patch.object(partitions, "FEW_FOLDERS", 1):  # tables of tests have few
                return view.latest()
        finally:
            self.storage.delete(index.path)
