"""What one instant did: its files, columns and what else its writer noted, for who asks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from lakelatch.errors import InvalidRequest
from lakelatch.storage.contract import Storage
from lakelatch.storage.uris import without_secrets
from lakelatch.timeline.actions import CLEAN, RESTORE, ROLLBACK, SAVEPOINT, WRITE_ACTIONS
from lakelatch.timeline.history.history import History
from lakelatch.timeline.history.level_file import ArchivedInstant
from lakelatch.timeline.instant import Instant, is_time
from lakelatch.timeline.log.whole_timeline import read_completed
from lakelatch.timeline.metadata import SCHEMA_KEY, WRITER_KEY, CommitMetadata
from lakelatch.timeline.plans.service_plan import REWRITING_SERVICES, read_service_plan
from lakelatch.timeline.service_metadata import read_cleaned, read_savepointed, read_undone
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.ui.entries import Entry, completed_entry, furthest, key_of

_FILES_SHOWN = 500
_TEXT_SHOWN = 500
_SECRET = re.compile(r"pass|secret|token|credential|private|access.?key|account.?key|auth|sas\b", re.IGNORECASE)
ARCHIVED_AT_ONCE = 2000


def details_of(storage: Storage, key: str) -> dict[str, Any]:
    """What the files of one instant say, on whichever timeline it is. `key` is that of an `Entry`.

    Errors: `InvalidRequest` for one that is on neither; `CorruptTable`.
    """
    requested, _, _ = key.partition(".")
    if not is_time(requested):
        raise InvalidRequest(f"{key!r} is no instant: it takes the 17 digits of its requested time")
    snapshot = Snapshot.look(storage)
    files = [one for one in snapshot.of(requested) if key_of(requested, one.action) == key]
    instant = furthest(files) if files else _archived(storage, requested)
    found: dict[str, Any] = {"key": key, "steps": [one.file_name for one in files]}
    if instant.completion is not None:
        return {**found, **_completed(instant, read_completed(storage, instant))}
    if instant.action in REWRITING_SERVICES:
        plan = read_service_plan(storage, requested, instant.action)
        groups = [f"{partition or '.'}/{file_id}" for partition, file_id in sorted(plan.groups)]
        found.update(files=[{"path": one} for one in groups[:_FILES_SHOWN]], file_count=len(groups))
    return found


def archived_entries(storage: Storage, before: str) -> dict[str, Any]:
    """The last archived instants that completed before a time, or of all if it is "": so many at once, newest first."""
    if before and not is_time(before):
        raise InvalidRequest(f"before={before!r} is no time: it takes the 17 digits of a completion time")
    history = History.load(storage)
    found = [one for one in history.instants(until=before or None) if not before or one.completion < before]
    chosen = found[-ARCHIVED_AT_ONCE:][::-1]
    entries = [_archived_entry(history, one) for one in chosen]
    return {"entries": [{"key": one.key, **one.brief()} for one in entries], "left": len(found) - len(chosen)}


def _archived_entry(history: History, archived: ArchivedInstant) -> Entry:
    instant = archived.instant
    reads = instant.action in (*WRITE_ACTIONS, ROLLBACK, RESTORE)
    return completed_entry(instant, history.metadata(archived) if reads else b"", archived=True)


def _archived(storage: Storage, requested: str) -> Instant:
    archived = History.load(storage).find(requested)
    if archived is None:
        raise InvalidRequest(f"{requested} is not on the timeline, nor in its history: it was rolled back, or cleaned")
    return archived.instant


def _completed(instant: Instant, content: bytes) -> dict[str, Any]:
    if instant.action in WRITE_ACTIONS:
        return _write(CommitMetadata.from_avro(content, instant.path))
    if instant.action in (ROLLBACK, RESTORE):
        return {"undone": [f"{action or 'instant'} {time}" for time, action in read_undone(content, instant.path)]}
    if instant.action in (CLEAN, SAVEPOINT):
        read = read_cleaned if instant.action == CLEAN else read_savepointed
        by_partition: Mapping[str, Any] = read(content, instant.path)
        paths = [f"{partition or '.'}/{name}" for partition, names in by_partition.items() for name in sorted(names)]
        return {"files": [{"path": path} for path in paths[:_FILES_SHOWN]], "file_count": len(paths)}
    return {}


def _write(metadata: CommitMetadata) -> dict[str, Any]:
    stats = sorted(metadata.stats, key=lambda stat: stat.path)
    files = [
        {"path": one.path, "rows": one.num_writes, "deletes": one.num_deletes, "bytes": one.total_write_bytes}
        for one in stats[:_FILES_SHOWN]
    ]
    return {
        "files": files,
        "file_count": len(stats),
        "partitions": len({one.partition for one in stats}),
        "replaced": len(metadata.replaced_file_groups()),
        "columns": _columns(metadata.schema),
        "noted": _noted(metadata.extra),
    }


def _columns(schema: str | None) -> list[str]:
    try:
        return [str(field["name"]) for field in json.loads(schema or "{}").get("fields", ())]
    except (ValueError, AttributeError, KeyError, TypeError):  # another engine's, or a test's
        return []


def _noted(extra: Mapping[str, str]) -> dict[str, str]:
    """What a commit's writer noted beside the columns, without what may be a secret."""
    shown = {key: value for key, value in sorted(extra.items()) if key not in (SCHEMA_KEY, WRITER_KEY)}
    return {key: "…" if _SECRET.search(key) else _shortened(without_uri_secrets(value)) for key, value in shown.items()}


def without_uri_secrets(value: str) -> str:
    """A value that is a URI is shown without its user, password and parameters."""
    return without_secrets(value) if "://" in value else value


def _shortened(value: str) -> str:
    return value if len(value) <= _TEXT_SHOWN else f"{value[:_TEXT_SHOWN]}…"
