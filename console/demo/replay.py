"""The table as it was after each step, read by hudi-rs, a reader that nobody here wrote, and compared row by row.

A copy of the table (hard links) is given its timeline files one by one, in the order in which readers could see them.
After each, hudi-rs must return what `lakelatch` returns for that moment. All data files lie there from the beginning,
so each step also shows that files of later and unfinished writes stay invisible.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from lakelatch.console.demo.flights import sorted_by_key
from lakelatch.errors import InvalidRequest
from lakelatch.spark.read.reader import plan_read
from lakelatch.timeline.table_config import PROPERTIES_PATH
from lakelatch.timeline.timeline import COMPLETED, Instant, parse_file_name

_TIMELINE = ".hoodie/timeline"


@dataclass(frozen=True)
class Step:
    """One event of the timeline, and how the two readers compared after it."""

    instant: Instant
    rows: int
    differences: tuple[str, ...]


def replay(
    table: Path, copy: Path, columns: list[str], on_step: Callable[[int, int], None] = lambda done, total: None
) -> list[Step]:
    """Replays the timeline and compares after every step; an empty `differences` everywhere is what must come out."""
    shutil.rmtree(copy, ignore_errors=True)
    _link_data(table, copy)
    events = _events(table)
    steps = []
    for number, (time, instant, files) in enumerate(events, start=1):
        for name in files:
            os.link(table / _TIMELINE / name, copy / _TIMELINE / name)
        compacted = instant.state == COMPLETED and instant.action == "commit"
        steps.append(_compare(table, copy, columns, time, instant, read_optimized=compacted))
        on_step(number, len(events))
    return steps


def read_with_hudi(table: Path, columns: list[str], read_optimized: bool = False) -> pa.Table:
    """The table as hudi-rs reads it now, in key order."""
    try:
        from hudi import HudiReadOptions, HudiTableBuilder
    except ImportError:
        raise InvalidRequest("comparing needs hudi-rs: pip install 'lakelatch[demo]'") from None
    options = HudiReadOptions().with_hudi_option(
        "hoodie.read.use.read_optimized.mode", "true" if read_optimized else "false"
    )
    batches = HudiTableBuilder.from_base_uri(str(table)).build().read(options)
    return sorted_by_key(pa.Table.from_batches([pa.record_batch(batch) for batch in batches]).select(columns))


def read_with_lakelatch(table: Path, columns: list[str], **options: str) -> pa.Table:
    """The table as lakelatch reads it, in key order: the executors' code, run here."""
    plan = plan_read(str(table), {"columns": ",".join(columns), **options})
    batches: Iterator[pa.RecordBatch] = (batch for found in plan.slices for batch in plan.read(found))
    return sorted_by_key(pa.Table.from_batches(batches, schema=plan.schema))


def differences(left: pa.Table, right: pa.Table) -> list[str]:
    """Where two tables in key order differ: by number of rows, or by column."""
    if left.num_rows != right.num_rows:
        return [f"{left.num_rows} rows against {right.num_rows}"]
    found = []
    for name in left.column_names:
        ours, theirs = left[name].combine_chunks(), right[name].cast(left[name].type).combine_chunks()
        if not ours.equals(theirs):
            found.append(f"column {name} differs")
    return found


def _compare(table: Path, copy: Path, columns: list[str], time: str, instant: Instant, read_optimized: bool) -> Step:
    # A plan changes nothing that readers see, and has no completion time that could be meant by its own time.
    as_of = {"as.of.instant": time}
    theirs = read_with_hudi(copy, columns)
    found = differences(read_with_lakelatch(table, columns, **as_of), theirs)
    if read_optimized:
        ours = read_with_lakelatch(table, columns, **as_of, **{"hoodie.datasource.query.type": "read_optimized"})
        hudi = read_with_hudi(copy, columns, read_optimized=True)
        found += [f"read-optimized: {difference}" for difference in differences(ours, hudi)]
    return Step(instant, theirs.num_rows, tuple(found))


def _events(table: Path) -> list[tuple[str, Instant, list[str]]]:
    """Completions and plans in the order in which they appeared, each with the files that it adds."""
    names = os.listdir(table / _TIMELINE)
    instants = [instant for instant in map(parse_file_name, names) if instant is not None]
    completed = sorted((i for i in instants if i.state == COMPLETED), key=lambda i: i.completion or "")
    events: list[tuple[str, Instant, list[str]]] = []
    for instant in completed:
        own = [i.file_name for i in instants if i.requested == instant.requested and not _is_plan(i)]
        events.append((instant.completion or "", instant, own))
    for instant in instants:
        if _is_plan(instant):
            events.append((instant.requested, instant, [instant.file_name]))
    events.sort(key=lambda event: event[0])
    first = next(number for number, event in enumerate(events) if event[1].state == COMPLETED)
    return events[first:]  # before the first commit there is nothing to read


def _is_plan(instant: Instant) -> bool:
    return instant.action == "compaction" and instant.state == "requested"


def _link_data(table: Path, copy: Path) -> None:
    (copy / _TIMELINE).mkdir(parents=True)
    os.link(table / PROPERTIES_PATH, copy / PROPERTIES_PATH)
    for folder, folders, files in os.walk(table):
        if ".hoodie" in folders:
            folders.remove(".hoodie")
        inside = copy / Path(folder).relative_to(table)
        inside.mkdir(exist_ok=True)
        for name in files:
            os.link(Path(folder) / name, inside / name)
