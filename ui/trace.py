"""A timeline as a trace in Chrome's JSON format, which Perfetto opens (ui.perfetto.dev)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lakelatch.errors import InvalidRequest
from lakelatch.storage.uris import without_secrets
from lakelatch.timegen.instant_time import to_ms
from lakelatch.timeline.instant import ABORTED
from lakelatch.transactions.conflicts.report import Loss
from lakelatch.ui.entries import LOST, Entry

_PROCESS = 1


def write_trace(file: Path, uri: str, entries: Sequence[Entry], losses: Sequence[Loss] = ()) -> None:
    """Writes the instants as slices in a track for each writer and service, and a flow from each loser to its winner.

    Errors: `InvalidRequest` for a file that cannot be written.
    """
    try:
        file.write_text(json.dumps({"traceEvents": trace_events(uri, entries, losses), "displayTimeUnit": "ms"}))
    except OSError as error:
        raise InvalidRequest(f"--trace {str(file)!r} cannot be written: {error.strerror or error}") from error


def trace_events(uri: str, entries: Sequence[Entry], losses: Sequence[Loss] = ()) -> list[dict[str, Any]]:
    """The events of the trace, with times in microseconds since 1970."""
    there = {entry.requested for entry in entries}
    lost = [_lost(loss) for loss in losses if loss.instant not in there]
    shown = sorted([*entries, *lost], key=lambda entry: entry.requested)
    now_ms = max((_end_ms(entry) for entry in shown), default=0)
    lanes = {lane: number for number, lane in enumerate(dict.fromkeys(map(lane_of, shown)), 1)}
    events: list[dict[str, Any]] = [_name("process_name", 0, without_secrets(uri))]
    events += [_name("thread_name", number, lane) for lane, number in lanes.items()]
    for entry in shown:
        start_ms = to_ms(entry.requested)
        is_open = not entry.completion and entry.state not in (LOST, ABORTED)
        end_ms = now_ms if is_open else _end_ms(entry)
        events.append(
            {
                "ph": "X",
                "name": f"{entry.operation or entry.service or entry.action}"
                + ("" if entry.completion else f" ({entry.shown_state})"),
                "cat": entry.state,
                "pid": _PROCESS,
                "tid": lanes[lane_of(entry)],
                "ts": start_ms * 1000,
                "dur": max(end_ms - start_ms, 0) * 1000,
                "args": entry.brief(),
            }
        )
    return events + _flows(shown, lanes)


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


def _name(kind: str, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": _PROCESS, "tid": thread, "args": {"name": name}}


def _flows(shown: Sequence[Entry], lanes: dict[str, int]) -> list[dict[str, Any]]:
    """One arrow from the end of each write that lost to the end of the one that won."""
    by_time = {entry.requested: entry for entry in shown}
    events: list[dict[str, Any]] = []
    for number, loser in enumerate((entry for entry in shown if entry.winner in by_time), 1):
        for phase, entry in (("s", loser), ("f", by_time[loser.winner])):
            place = {"pid": _PROCESS, "tid": lanes[lane_of(entry)], "ts": max(_end_ms(entry) * 1000 - 1, 0)}
            ends = {"bp": "e"} if phase == "f" else {}
            events.append({"ph": phase, "id": number, "name": "lost to", "cat": LOST, **place, **ends})
    return events
