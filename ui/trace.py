"""A timeline as a trace in Chrome's JSON format, which Perfetto opens (ui.perfetto.dev)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lakelatch.errors import InvalidRequest
from lakelatch.storage.uris import without_secrets
from lakelatch.timegen.instant_time import to_ms
from lakelatch.timeline.instant import ABORTED
from lakelatch.transactions.conflicts.report import Loss
from lakelatch.ui.entries import LOST, Entry

_PROCESS = 1
_SHORTEST_MS = 1  # an instant's resolution; an arrow ends in a slice only if that has a length


def write_trace(file: Path, uri: str, entries: Sequence[Entry], losses: Sequence[Loss] = ()) -> None:
    """Writes the instants as slices in a track for each writer and service, and a flow from each loser to its winner.

    Errors: `InvalidRequest` for a file that cannot be written.
    """
    try:
        file.write_text(json.dumps({"traceEvents": trace_events(uri, entries, losses), "displayTimeUnit": "ms"}))
    except OSError as error:
        raise InvalidRequest(
            f"--trace {str(file)!r} cannot be written: {error.strerror or error}", option="--trace"
        ) from error


def trace_events(uri: str, entries: Sequence[Entry], losses: Sequence[Loss] = ()) -> list[dict[str, Any]]:
    """The events of the trace, with times in microseconds since 1970."""
    there = {entry.requested for entry in entries}
    lost = [_lost(loss) for loss in losses if loss.instant not in there]
    shown = sorted([*entries, *lost], key=lambda entry: entry.requested)
    now_ms = max((_end_ms(entry) for entry in shown), default=0)
    slices = [(entry, to_ms(entry.requested), _shown_end_ms(entry, now_ms)) for entry in shown]
    tracks = _tracks(slices)
    numbers = {track: number for number, track in enumerate(dict.fromkeys(tracks), _PROCESS + 1)}
    events: list[dict[str, Any]] = [_name("process_name", _PROCESS, without_secrets(uri))]
    events += [
        _name("thread_name", number, lane + (f" ({row})" if row > 1 else "")) for (lane, row), number in numbers.items()
    ]
    ends: dict[str, dict[str, int]] = {}
    for (entry, start_ms, end_ms), track in zip(slices, tracks, strict=True):
        place = {"pid": _PROCESS, "tid": numbers[track]}
        ends[entry.key] = {**place, "ts": end_ms * 1000 - 1}
        events.append(
            {
                "ph": "X",
                "name": f"{entry.operation or entry.service or entry.action}"
                + ("" if entry.completion else f" ({entry.shown_state})"),
                "cat": entry.state,
                **place,
                "ts": start_ms * 1000,
                "dur": (end_ms - start_ms) * 1000,
                "args": entry.brief(),
            }
        )
    return events + _flows(shown, ends)


def _tracks(slices: Sequence[tuple[Entry, int, int]]) -> list[tuple[str, int]]:
    """The lane of each slice, and its row there: slices of one track may not overlap, and those of one name do."""
    free_ms: dict[str, list[int]] = {}
    found = []
    for entry, start_ms, end_ms in slices:
        rows = free_ms.setdefault(lane_of(entry), [])
        row = next((number for number, free in enumerate(rows) if free <= start_ms), len(rows))
        rows[row : row + 1] = [end_ms]
        found.append((lane_of(entry), row + 1))
    return found


def lane_of(entry: Entry) -> str:
    """The track of an instant: its service's, or its writer's."""
    is_service = entry.service or entry.action not in ("commit", "deltacommit", "replacecommit", "write")
    return (entry.service or entry.action) if is_service else entry.writer or "writers without a name"


def _lost(loss: Loss) -> Entry:
    return Entry(
        loss.instant,
        None,
        "write",
        LOST,
        writer=loss.writer,
        rows=loss.rows_lost,
        size_bytes=loss.bytes_lost,
        winner=loss.winner,
        winner_writer=loss.winner_writer,
        seconds_lost=loss.time_lost_s,
    )


def _end_ms(entry: Entry) -> int:
    if entry.state == LOST:
        return to_ms(entry.requested) + int(entry.seconds_lost * 1000)
    return to_ms(entry.completion or entry.ended or entry.requested)


def _shown_end_ms(entry: Entry, now_ms: int) -> int:
    """Where its slice ends: what is still open reaches to the end of the trace."""
    is_open = not entry.completion and entry.state not in (LOST, ABORTED)
    return max(now_ms if is_open else _end_ms(entry), to_ms(entry.requested) + _SHORTEST_MS)


def _name(kind: str, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": _PROCESS, "tid": thread, "args": {"name": name}}


def _flows(shown: Sequence[Entry], ends: Mapping[str, Mapping[str, int]]) -> list[dict[str, Any]]:
    """One arrow from the end of each write that lost to the end of the one that won, both within their slices."""
    events: list[dict[str, Any]] = []
    for number, loser in enumerate((entry for entry in shown if entry.winner in ends), 1):
        flow = {"id": number, "name": "lost to", "cat": LOST}
        events.append({"ph": "s", **flow, **ends[loser.key]})
        events.append({"ph": "f", "bp": "e", **flow, **ends[loser.winner]})
    return events
