"""Replays the timeline: after each step the table is read by hudi-rs, another project's reader, and compared.

A copy of the table (hard links, where it is local) is given its timeline files one by one, in the order in which
readers could see them. After each, hudi-rs must return what `lakelatch` returns for that moment. All data files lie
there from the beginning, so each step also shows that files of later and unfinished writes stay invisible.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from lakelatch.console.demo.flights import sorted_by_key
from lakelatch.console.demo.plan import KEY_FIELDS
from lakelatch.engine.read.plan import plan_read
from lakelatch.errors import InvalidRequest
from lakelatch.storage.contract import Storage
from lakelatch.storage.local import LocalStorage
from lakelatch.storage.options import StorageOptions
from lakelatch.storage.uris import open_storage
from lakelatch.timeline.instant import COMPLETED, Instant, parse_file_name
from lakelatch.timeline.properties_file import PROPERTIES_PATH

_HOODIE = ".hoodie/"
_TIMELINE = f"{_HOODIE}timeline"


@dataclass(frozen=True)
class Step:
    """One event of the timeline, and how the two readers compared after it."""

    instant: Instant
    rows: int
    differences: tuple[str, ...]


def replay(
    table: str,
    copy: Path,
    columns: list[str],
    options: Mapping[str, str],
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> list[Step]:
    """Replays the timeline and compares after every step; `differences` must be empty in all of them.

    `options` are those of the table's storage.
    """
    shutil.rmtree(copy, ignore_errors=True)
    storage = open_storage(table, StorageOptions.from_options(options))
    _copy_data(storage, copy)
    events = _events(storage)
    steps = []
    for number, (time, instant, files) in enumerate(events, start=1):
        for name in files:
            _copy_file(storage, f"{_TIMELINE}/{name}", copy)
        compacted = instant.state == COMPLETED and instant.action == "commit"
        steps.append(_compare(table, copy, columns, options, time, instant, compacted))
        on_step(number, len(events))
    return steps


def read_with_hudi(
    table: str,
    columns: list[str],
    options: Mapping[str, str],
    read_optimized: bool = False,
    keys: Sequence[str] = KEY_FIELDS,
) -> pa.Table:
    """The table as hudi-rs reads it now, in key order. `options` are those of the table's storage."""
    try:
        from hudi import HudiReadOptions, HudiTableBuilder
    except ImportError:
        raise InvalidRequest("comparing needs hudi-rs: pip install 'lakelatch[demo]'") from None
    how = HudiReadOptions().with_hudi_option(
        "hoodie.read.use.read_optimized.mode", "true" if read_optimized else "false"
    )
    builder = HudiTableBuilder.from_base_uri(table).with_storage_options(hudi_rs_settings(options))
    batches = builder.build().read(how)
    found = pa.Table.from_batches([pa.record_batch(batch) for batch in batches])
    return sorted_by_key(found.select(columns), keys)


def hudi_rs_settings(options: Mapping[str, str]) -> dict[str, str]:
    """The settings by which hudi-rs reaches S3, from the write options for Lakelatch."""
    place = StorageOptions.from_options(options)
    settings = {
        "aws_endpoint": place.endpoint_url,
        "aws_region": place.region,
        "aws_allow_http": "true" if place.allow_http else "",
        "aws_access_key_id": place.access_key_id,
        "aws_secret_access_key": place.secret_access_key,
    }
    return {name: value for name, value in settings.items() if value}


def read_with_lakelatch(table: str, columns: list[str], options: Mapping[str, str]) -> pa.Table:
    """The table as Lakelatch reads it, in key order, by the executors' code in this process."""
    plan = plan_read(table, {"columns": ",".join(columns), **options})
    batches: Iterator[pa.RecordBatch] = (batch for found in plan.slices for batch in plan.read(found))
    return sorted_by_key(pa.Table.from_batches(batches, schema=plan.schema))


def differences(left: pa.Table, right: pa.Table) -> list[str]:
    """The differences of two tables in key order: in the number of rows, or by column."""
    if left.num_rows != right.num_rows:
        return [f"{left.num_rows} rows against {right.num_rows}"]
    found = []
    for name in left.column_names:
        ours, theirs = left[name].combine_chunks(), right[name].cast(left[name].type).combine_chunks()
        if not ours.equals(theirs):
            found.append(f"column {name} differs")
    return found


def _compare(
    table: str,
    copy: Path,
    columns: list[str],
    options: Mapping[str, str],
    time: str,
    instant: Instant,
    read_optimized: bool,
) -> Step:
    # A plan changes nothing that readers see, and has no completion time that could be meant by its own time.
    as_of = {**options, "as.of.instant": time}
    theirs = read_with_hudi(str(copy), columns, {})
    found = differences(read_with_lakelatch(table, columns, as_of), theirs)
    if read_optimized:
        ours = read_with_lakelatch(table, columns, {**as_of, "hoodie.datasource.query.type": "read_optimized"})
        hudi = read_with_hudi(str(copy), columns, {}, read_optimized=True)
        found += [f"read-optimized: {difference}" for difference in differences(ours, hudi)]
    return Step(instant, theirs.num_rows, tuple(found))


def _events(storage: Storage) -> list[tuple[str, Instant, list[str]]]:
    """Completions and plans in the order in which they appeared, each with the files that it adds."""
    names = storage.names(_TIMELINE)
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


def _copy_data(storage: Storage, copy: Path) -> None:
    for path in storage.walk(""):
        if not path.startswith(_HOODIE) or path == PROPERTIES_PATH:
            _copy_file(storage, path, copy)
    (copy / _TIMELINE).mkdir(parents=True)


def _copy_file(storage: Storage, path: str, copy: Path) -> None:
    target = copy / path
    target.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(storage, LocalStorage):
        os.link(Path(storage.root) / path, target)
    else:
        target.write_bytes(storage.read(path))
