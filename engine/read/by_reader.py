"""Which slices Spark reads by itself, entirely or except for rows changed by small logs, and which Python reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from lakelatch.engine.read.places import RESERVED, have_places
from lakelatch.engine.table.schema import parsed_schema, schema_at
from lakelatch.format.file_slices import FileSlice
from lakelatch.storage.contract import Storage
from lakelatch.timeline.properties_file import PROPERTIES_PATH
from lakelatch.timeline.snapshot import Snapshot

if TYPE_CHECKING:
    from lakelatch.engine.read.plan import ReadPlan

#: The most compressed bytes of logs in one read: a job makes overlays of them, or each executor holds the places of
#: their rows in memory.
LOGS_MAX_BYTES = 256 * 1024 * 1024
#: Base files of fewer bytes are merged in Python as fast as a second Python stage would run.
BASE_MIN_BYTES = 128 * 1024 * 1024
#: Logs of at most so many bytes, and the keys of so many bytes of base files, are read by the process that plans.
SMALL_LOGS_MAX_BYTES, SMALL_BASE_MAX_BYTES = 1024 * 1024, 128 * 1024 * 1024
#: Spark is handed a bit for each row of the base files with each query, so overlays are for so many bytes and slices.
OVERLAID_MAX_BYTES, OVERLAID_SLICES_MAX = 4 * 1024 * 1024 * 1024, 256
#: The keys of more bytes might take longer to read than Spark waits for a broadcast (300 s by default).
BASE_MAX_BYTES = 32 * 1024 * 1024 * 1024
_BASE_TO_LOGS = 4  # how many times larger than its logs a base file has to be
_ASKED_MAX = 64  # files whose sizes are requested, as a sample of the slices
_WIDENED_BY_SPARK = {(pa.int32(), pa.int64()), (pa.int32(), pa.float64()), (pa.float32(), pa.float64())}


@dataclass(frozen=True)
class Sizes:
    """The bytes of slices' base files and logs; if these are many files, about so many, from a sample."""

    base_bytes: int = 0
    logs_bytes: int = 0
    is_sample: bool = False
    slices: int = 0

    @classmethod
    def of(cls, storage: Storage, slices: Sequence[FileSlice]) -> Sizes:
        """Asks for the sizes, side by side."""
        if not slices:
            return cls()
        files = sum(1 + len(found.fresh_logs) for found in slices)
        asked = slices[:: -(-files // _ASKED_MAX)]
        bases = [partial(storage.stat, found.base_path or "") for found in asked]
        logs = [partial(storage.stat, found.path_of(name)) for found in asked for name in found.fresh_logs]
        sizes = [found.size_bytes * len(slices) // len(asked) for found in storage.together(*bases, *logs)]
        is_sample = len(asked) < len(slices)
        return cls(sum(sizes[: len(bases)]), sum(sizes[len(bases) :]), is_sample, len(slices))

    @property
    def logs_are_small(self) -> bool:
        """Whether the process that plans may read the logs, and the keys of the base files."""
        is_small = self.logs_bytes <= SMALL_LOGS_MAX_BYTES and self.base_bytes <= SMALL_BASE_MAX_BYTES
        return is_small and not self.is_sample

    @property
    def logs_fit_overlays(self) -> bool:
        """Whether it pays to merge the logs once, into files that other reads find."""
        fits = self.base_bytes <= OVERLAID_MAX_BYTES and self.slices <= OVERLAID_SLICES_MAX
        return fits and self.logs_bytes <= LOGS_MAX_BYTES

    @property
    def logs_are_few(self) -> bool:
        """Whether tasks can find what the logs change, and all together sooner than they merge everything."""
        is_worth_it = max(BASE_MIN_BYTES, _BASE_TO_LOGS * self.logs_bytes) <= self.base_bytes <= BASE_MAX_BYTES
        return is_worth_it and self.logs_bytes <= LOGS_MAX_BYTES


@dataclass(frozen=True)
class SlicesByReader:
    """The slices of a plan: `native` ones without logs, those read `beside_logs`, and all others, `in_python`.

    Where Spark has no connector for the storage, all are read in Python. So are slices whose files other engines may
    clean meanwhile, as Spark's error for a missing file says too little. `sizes` are those of the slices beside logs.
    """

    native: tuple[FileSlice, ...]
    beside_logs: tuple[FileSlice, ...]
    in_python: tuple[FileSlice, ...]
    sizes: Sizes

    @classmethod
    def of(cls, plan: ReadPlan) -> SlicesByReader:
        """Splits the slices of a plan; sizes are requested only where they decide."""
        native, _ = split_by_types(plan, [one for one in plan.slices if not one.fresh_logs])
        beside: list[FileSlice] = []
        if _may_be_beside_logs(plan):
            beside = [
                found
                for found in plan.slices
                if found.base_file and found.fresh_logs and (found.partition, found.file_id) not in plan.wider
            ]
        beside = split_by_types(plan, beside)[0]
        sizes = Sizes.of(plan.table.storage, beside)
        may_be_overlaid = plan.by_overlays and sizes.logs_fit_overlays
        may_be_joined = sizes.logs_are_few and have_places(beside)
        if not sizes.logs_are_small and not may_be_overlaid and not may_be_joined:
            beside = []
        taken = {*native, *beside}
        return cls(tuple(native), tuple(beside), tuple(found for found in plan.slices if found not in taken), sizes)


def _may_be_beside_logs(plan: ReadPlan) -> bool:
    """Whether slices may be read beside their logs at all.

    Not in tables of other engines: the types in their base files are unknown until these are opened.
    """
    config = plan.table.config
    is_plain = plan.instants is None and plan.keys is None and config.made_here and not config.column_groups
    return is_plain and RESERVED.isdisjoint(name.lower() for name in plan.schema.names)


def split_by_types(plan: ReadPlan, slices: list[FileSlice]) -> tuple[list[FileSlice], list[FileSlice]]:
    """The slices whose base files Spark reads as planned, and those with columns of types that it does not widen.

    Costs nothing for a table with its original columns. In tables of other engines Spark reads all.
    """
    table, config = plan.table, plan.table.config
    if not config.made_here or not config.create_schema:
        return slices, []
    if parsed_schema(config.create_schema, PROPERTIES_PATH).columns == table.schema:
        return slices, []
    timeline = plan.timeline or Snapshot.look(table.storage)
    completions = {one.requested: one.completion for one in timeline.completed}
    readable = {}
    for instant in {one.base_instant for one in slices}:
        began = schema_at(table.storage, config, timeline, instant).columns
        # A service that began then may have met columns added while it ran, of types that are unknown here.
        ended = completions.get(instant)
        after = table.schema if ended is None else schema_at(table.storage, config, timeline, ended).columns
        came_between = set(after.names).difference(began.names)
        readable[instant] = came_between.isdisjoint(plan.schema.names) and all(
            began.field(one.name).type == one.type or (began.field(one.name).type, one.type) in _WIDENED_BY_SPARK
            for one in plan.schema
            if one.name in began.names
        )
    return (
        [one for one in slices if readable[one.base_instant]],
        [one for one in slices if not readable[one.base_instant]],
    )
