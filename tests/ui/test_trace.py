"""A timeline as a trace, by the rules of Chrome's trace event format, and by those of Perfetto, which reads it.

Perfetto takes slices of one thread for calls: they follow each other, or lie within each other, and none may overlap
another one. A flow is bound to the slices in whose time its two ends lie.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from bare_table import add_log, commit, manager_of

from lakelatch.console.main import main
from lakelatch.storage.local import LocalStorage
from lakelatch.timegen.instant_time import to_ms
from lakelatch.transactions.conflicts.report import Loss
from lakelatch.ui.entries import Entry
from lakelatch.ui.trace import trace_events

FIELDS = {
    "M": {"ph", "name", "pid", "tid", "args"},
    "X": {"ph", "name", "cat", "pid", "tid", "ts", "dur", "args"},
    "s": {"ph", "id", "name", "cat", "pid", "tid", "ts"},
    "f": {"ph", "id", "name", "cat", "pid", "tid", "ts", "bp"},
}
EXACT = 2**53  # integers of JSON below it are what was written


def at(second: float) -> str:
    return f"202601010000{int(second):02d}{round(second % 1 * 1000):03d}"


def entry(start: float, end: float | None, writer: str = "", action: str = "deltacommit", **more: Any) -> Entry:
    completion, state = (None, "inflight") if end is None else (at(end), "completed")
    return Entry(at(start), completion, action, state, writer=writer, **more)


def loss(start: float, winner: Entry, seconds: float, writer: str = "") -> Loss:
    who = (at(start), writer, winner.requested, winner.action, winner.writer)
    return Loss(*who, False, False, 1, "", (), 1, seconds, 3, 4, seconds)


def problems(events: list[dict[str, Any]]) -> list[str]:
    """What a reader of the format would take amiss."""
    found = [f"{event}: not the fields of its kind" for event in events if set(event) != FIELDS[event["ph"]]]
    found += [
        f"{event}: {name} is no time"
        for event in events
        for name in ("ts", "dur")
        if name in event and not (type(event[name]) is int and 0 < event[name] < EXACT)
    ]
    return found + problems_of_names(events) + problems_of_slices(events) + problems_of_flows(events)


def problems_of_names(events: list[dict[str, Any]]) -> list[str]:
    named = Counter((event["name"], event["pid"], event["tid"]) for event in events if event["ph"] == "M")
    used = {("thread_name", event["pid"], event["tid"]) for event in events if event["ph"] != "M"}
    processes = [key for key in named if key[0] == "process_name"]
    threads = set(named) - set(processes)
    texts = Counter(event["args"]["name"] for event in events if event["name"] == "thread_name")
    found = [f"{key} is said {count} times" for key, count in {**named, **texts}.items() if count > 1]
    found += [f"{key} has no name, or no slice" for key in used ^ threads]
    found += [f"{key} is the thread of the process" for key in threads if key[1] == key[2]]
    return found + ([] if len(processes) == 1 else [f"{processes}: not one process"])


def problems_of_slices(events: list[dict[str, Any]]) -> list[str]:
    found = []
    ends: dict[int, int] = {}
    for event in sorted((one for one in events if one["ph"] == "X"), key=lambda one: one["ts"]):
        if event["ts"] < ends.get(event["tid"], 0):
            found.append(f"{event} begins before another slice of its thread has ended")
        ends[event["tid"]] = event["ts"] + event["dur"]
    return found


def problems_of_flows(events: list[dict[str, Any]]) -> list[str]:
    flows = [event for event in events if event["ph"] in "sf"]
    pairs = Counter((event["id"], event["ph"]) for event in flows)
    found = [f"{pair} comes {count} times" for pair, count in pairs.items() if count > 1]
    found += [
        f"the flow {number} has one end" for number, _ in pairs if not {(number, "s"), (number, "f")} <= set(pairs)
    ]
    found += [f"{event} is not bound to the slice around it" for event in flows if event.get("bp", "e") != "e"]
    return found + [f"{event} is in no slice" for event in flows if slice_around(events, event) is None]


def slice_around(events: list[dict[str, Any]], flow: dict[str, Any]) -> dict[str, Any] | None:
    return next(
        (
            one
            for one in events
            if one["ph"] == "X" and one["tid"] == flow["tid"] and one["ts"] <= flow["ts"] < one["ts"] + one["dur"]
        ),
        None,
    )


def test_the_trace_of_a_table_keeps_to_the_format(storage: LocalStorage, tmp_path: Path) -> None:
    """Three processes of one name write at once, one of which has not ended."""
    file_id = "0000000{}-0000-0000-0000-000000000000-0"  # each of a bucket of its own
    managers = [manager_of(storage, writer="etl") for _ in range(3)]
    begun = [manager.begin() for manager in managers]
    for number, transaction in enumerate(begun[:2]):
        commit(transaction, add_log(transaction, file_id.format(number), rows=7))
    file = tmp_path / "trace.json"
    assert main(["timeline", storage.root, "--trace", str(file), "--json"]) == 0
    trace = json.loads(file.read_text())
    assert trace["displayTimeUnit"] == "ms" and problems(trace["traceEvents"]) == []
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert [event["ts"] for event in slices] == sorted(to_ms(one.instant) * 1000 for one in begun)
    assert len({event["tid"] for event in slices}) == 3
    begun[2].abort()


def test_writers_of_one_name_that_are_at_work_at_once_have_tracks_of_their_own() -> None:
    shown = [
        entry(0, 5, "etl"),
        entry(1, 2, "etl"),
        entry(2, 3, "etl"),
        entry(4, 4),
        entry(4.5, None),
        entry(6, 7, "etl"),
    ]
    events = trace_events("/t", shown)
    assert problems(events) == []
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    tracks = [names[event["tid"]] for event in events if event["ph"] == "X"]
    unnamed = "writers without a name"
    assert tracks == ["etl", "etl (2)", "etl (2)", unnamed, unnamed, "etl"]


def test_an_arrow_ends_in_the_slices_of_loser_and_winner_however_short_and_whatever_else_has_their_times() -> None:
    winner = entry(1, 1, "hourly", operation="upsert")
    shown = [winner, entry(1, 9, action="savepoint"), entry(2, 3, "hourly")]
    events = trace_events("/t", shown, [loss(0.5, winner, 0.0, "nightly"), loss(0.7, winner, 2.5)])
    assert problems(events) == []
    flows = [event for event in events if event["ph"] in "sf"]
    bound = [slice_around(events, event) for event in flows]
    assert [one["args"].get("writer", "") for one in bound if one is not None] == ["nightly", "hourly", "", "hourly"]
