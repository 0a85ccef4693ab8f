"""What is due, what waits, how long the commit log is, and what files say: orphans, heavy logs, skewed buckets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import Any

from lakelatch.engine.doctor.finding import Finding, Patient
from lakelatch.engine.services.counters import Counters
from lakelatch.engine.services.keeping.steps import Steps
from lakelatch.engine.services.removals import archiving
from lakelatch.engine.services.service import PlannedService
from lakelatch.engine.services.verifying import SUPERFLUOUS, verify
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.slices.table_view import TableView
from lakelatch.heartbeat.observer import Observer
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.timegen.instant_time import to_ms
from lakelatch.timeline.log.events import LOG_FOLDER, slot_number
from lakelatch.timeline.plans.service_plan import REWRITING_SERVICES
from lakelatch.timeline.snapshot import Snapshot

_AT_ONCE = 64
_MIB = 1024 * 1024


def due(patient: Patient) -> Iterator[Finding]:
    """Table services that are due by these options, and plans that wait."""
    steps, options = Steps(patient.options), patient.options
    now_ms = patient.system.realtime_ms()
    counters = Counters.of(Snapshot.load(patient.storage), now_ms)
    planned: list[tuple[PlannedService[Any], bool]] = [
        (steps.compaction, not patient.config.copies_on_write),
        (steps.clean, options.cleaning.automatic),
    ]
    found = [service.action for service, wanted in planned if wanted and service.due(counters)]
    if options.archiving.automatic and archiving.is_due(counters, options.archiving):
        found.append(f"archive ({len(counters.writes)} writes on the active timeline)")
    if found:
        yield Finding(
            "services-due",
            f"due by these options: {', '.join(found)}",
            "reads merge more logs, old files keep their space, and each look at the timeline takes longer",
            f"lakelatch service run --once {patient.name}, or have writers do it after their commits (docs/guide.md)",
        )
    claimed = set(Observer(patient.storage).instants())
    waiting = [one for one in counters.snapshot.pending if one.action in REWRITING_SERVICES]
    old = [
        one
        for one in waiting
        if one.requested not in claimed and now_ms - to_ms(one.requested) > patient.limits.plan_age_s * 1000
    ]
    if old:
        oldest = min(old, key=lambda one: one.requested)
        yield Finding(
            "plans-waiting",
            f"{len(old)} plans wait, and nobody carries them out: {oldest.action} {oldest.requested} is the oldest",
            "no other plan takes their file groups, so those are neither compacted nor clustered",
            f"lakelatch service run --once {patient.name}, or call it off: lakelatch cancel {patient.name} "
            f"{oldest.requested}",
        )


def commit_log(patient: Patient) -> Iterator[Finding]:
    """Slots that are kept, and who keeps them."""
    numbers = sorted(filter(None, map(slot_number, patient.storage.names(LOG_FOLDER))))
    if len(numbers) <= patient.limits.slots:
        return
    observer = Observer(patient.storage)
    beats = {instant: observer.beat_of(instant) for instant in observer.instants()}
    oldest = min(((one.start_slot, instant, one.writer) for instant, one in beats.items() if one), default=None)
    held = f"; {oldest[2]} (instant {oldest[1]}) began at slot {oldest[0]}" if oldest else ""
    yield Finding(
        "long-log",
        f"the commit log has {len(numbers)} slots, {numbers[0]} to {numbers[-1]}{held}",
        "slots stay while a transaction may have to read them, and each commit lists them",
        f"end the transaction that began first, or have it rolled back: lakelatch service run --once {patient.name}",
    )


def whole(patient: Patient) -> Iterator[Finding]:
    """`lakelatch verify`, and what superfluous files cost."""
    found = verify(patient.storage, patient.config).findings
    broken = [one for one in found if one.kind != SUPERFLUOUS]
    if broken:
        yield Finding(
            "not-whole",
            f"{len(broken)} files are missing or damaged: {broken[0].kind}: {broken[0].path}: {broken[0].why}",
            "rows are missing, or readers fail",
            f"restore them from a copy; lakelatch verify {patient.name} lists all",
        )
    orphans = [one.path for one in found if one.kind == SUPERFLUOUS]
    if orphans:
        size = sum(_sizes(patient.storage, orphans).values())
        yield Finding(
            "orphans",
            f"{len(orphans)} files with {size / _MIB:,.1f} MiB belong to nothing, such as {orphans[0]}",
            "they cost space; data files among them are rows that readers may show twice",
            f"remove what `lakelatch verify {patient.name}` lists as superfluous, once no writer is at work",
        )


def sizes(patient: Patient) -> Iterator[Finding]:
    """File groups that are far larger than others, and logs that outweigh base files."""
    slices = TableView.load(patient.storage, patient.config).latest()[: patient.limits.groups]
    paths = [path for one in slices for path in _paths(one)]
    found = _sizes(patient.storage, paths)
    yield from _skewed(patient, slices, found)
    logs = sum(found.get(path, 0) for one in slices for path in one.log_paths)
    bases = sum(found.get(one.base_path, 0) for one in slices if one.base_path)
    if logs > patient.limits.log_bytes and logs > patient.limits.log_share * bases:
        yield Finding(
            "heavy-logs",
            f"log files have {logs / _MIB:,.1f} MiB, and base files {bases / _MIB:,.1f} MiB",
            "each read merges the logs of what it reads",
            f"compact: lakelatch service run --once {patient.name}, and often enough that logs stay the smaller part",
        )


def _skewed(patient: Patient, slices: tuple[FileSlice, ...], found: dict[str, int]) -> Iterator[Finding]:
    limits, partitions = patient.limits, defaultdict[str, list[tuple[int, str]]](list)
    for one in slices:
        partitions[one.partition].append((sum(found.get(path, 0) for path in _paths(one)), one.file_id))
    worst = (0.0, "", "", 0, 0)
    for partition, groups in partitions.items():
        buckets = max(patient.config.bucket_count or 0, len(groups))
        middle = median([size for size, _ in groups] + [0] * (buckets - len(groups)))
        size, file_id = max(groups)
        if buckets > 1 and size > limits.bucket_bytes and size > limits.bucket_times * middle:
            worst = max(worst, (size / max(middle, 1), partition, file_id, size, int(middle)))
    times, partition, file_id, size, middle = worst
    if times:
        yield Finding(
            "skewed-buckets",
            f"file group {file_id} of partition {partition!r} has {size / _MIB:,.1f} MiB, and the median there is "
            f"{middle / _MIB:,.1f} MiB",
            "a file group is written, merged and compacted by one task at a time, so that all wait for this one, and "
            "writers conflict there most",
            "hash by a field with more, and more even, values (hoodie.bucket.index.hash.field), which needs a new "
            "table; or partition by a field that divides these rows",
        )


def _paths(one: FileSlice) -> list[str]:
    return [*one.log_paths, *([one.base_path] if one.base_path else ())]


def _sizes(storage: Storage, paths: list[str]) -> dict[str, int]:
    """The bytes of these files; those that are gone by now are left out."""
    found: dict[str, int] = {}

    def look(path: str) -> None:
        try:
            found[path] = storage.stat(path).size_bytes
        except NotFound:
            return

    for start in range(0, len(paths), _AT_ONCE):
        storage.together(*(partial(look, path) for path in paths[start : start + _AT_ONCE]))
    return found
