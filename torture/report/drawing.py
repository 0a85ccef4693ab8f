"""One round as a picture: a lane for each client, for the lock server and for the disk, over time.

What is drawn and where is decided here; `round.svg.j2` makes SVG of it, and `style.css` gives the colours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lakelatch.torture.history.reading import Line

_LEFT, _WIDTH, _TOP, _LANE = 104.0, 980.0, 22.0, 26.0
_ELEMENTS_MAX = 1200
_BINS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_ROLES = ("transfer", "append", "spark", "compact", "serve", "cancel", "tail", "snapshot")  # lanes, top to bottom
_SHARED = {"server": "lock server", "store": "object store", "disk": "disk"}
_OUTCOMES = ("committed", "done", "failed", "refused", "unknown", "unanswered")  # the rarer, the later: drawn above
_FIRST = "; the first: "
_SECOND_NS = 1_000_000_000
_STEPS_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600)


@dataclass(frozen=True)
class Bar:
    """A call, or several that are too close together to be drawn apart."""

    start: float
    end: float
    outcome: str
    title: str
    count: int = 1


@dataclass(frozen=True)
class Shape:
    """A path, a text or a rectangle, by what is given; `kind` is its class in the style sheet."""

    kind: str = ""
    x: str = ""
    y: str = ""
    width: str = ""
    height: str = ""
    path: str = ""
    text: str = ""
    title: str = ""


@dataclass(frozen=True)
class Picture:
    """The shapes of an SVG, from back to front."""

    width: str
    height: str
    shapes: list[Shape]


def draw_round(facts: Mapping[str, Any], lines: list[Line]) -> Picture | None:
    """The picture of a round; None if nothing happened."""
    times = [int(line["at_ns"]) for line in lines]
    if not times:
        return None
    begin_ns = int(facts.get("began_ns") or min(times))
    scale = Scale(begin_ns, max(int(facts.get("ended_ns") or 0), max(times)))
    lanes = _lanes(lines)
    height = _TOP + _LANE * len(lanes) + 8
    healed_ns = int(facts.get("healed_ns") or 0)
    faults_ended_ns = int(facts.get("faults_ended_ns") or 0)
    parts = [*_frame(scale, lanes, height, faults_ended_ns, healed_ns)]
    parts += _faults(scale, lanes, lines)
    parts += _reads(scale, lanes, lines)
    calls = _calls(scale, lines)
    for found in (calls, *([] if _few(calls) else (_thinned(calls, size) for size in _BINS[1:]))):
        shown = found
        if _few(shown):
            break
    for client, bars in shown.items():
        parts += _bars(bars, lanes[client])
    parts += _ticks(calls, lanes)
    parts += _marks(scale, lanes, lines)
    return Picture(f"{_LEFT + _WIDTH + 12:g}", f"{height:g}", parts)


@dataclass(frozen=True)
class Scale:
    """From nanoseconds to the drawing."""

    begin_ns: int
    end_ns: int

    def at(self, time_ns: int) -> float:
        """The horizontal place of a time."""
        share = (time_ns - self.begin_ns) / max(self.end_ns - self.begin_ns, 1)
        return _LEFT + _WIDTH * min(max(share, 0.0), 1.0)

    def seconds(self, time_ns: int) -> float:
        return (time_ns - self.begin_ns) / _SECOND_NS

    @property
    def length_s(self) -> float:
        return max(self.end_ns - self.begin_ns, 1) / _SECOND_NS


def family_of(fault: str) -> str:
    """The family of a kind of fault: client, clock, storage or locks."""
    if fault.startswith("clock"):
        return "clock"
    if fault.startswith(("storage", "store_", "disk")):
        return "storage"
    return "locks" if fault.startswith(("locks", "lease", "server", "session")) else "client"


def _lanes(lines: list[Line]) -> dict[str, float]:
    """The height of the middle of each lane, by client; what all share comes last."""
    clients = {line["client"] for line in lines if line["client"] != "nemesis"}
    clients |= {line["target"] for line in lines if line["event"] == "fault"} - _SHARED.keys()

    def place(client: str) -> tuple[int, str, int]:
        role, _, number = client.rpartition("-")
        known = _ROLES.index(role) if role in _ROLES else len(_ROLES)
        return known, role, int(number) if number.isdigit() else 0

    names = [*sorted(clients, key=place), *_SHARED]
    return {name: _TOP + _LANE * (turn + 0.5) for turn, name in enumerate(names)}


def _frame(
    scale: Scale, lanes: Mapping[str, float], height: float, faults_ended_ns: int, healed_ns: int
) -> Iterator[Shape]:
    bottom, right = height - 8, _LEFT + _WIDTH
    if healed_ns:
        x = scale.at(healed_ns)
        yield Shape("calm", f"{x:.1f}", f"{_TOP:g}", f"{right - x:.1f}", f"{bottom - _TOP:g}")
    step_s = next((step for step in _STEPS_S if scale.length_s / step <= 14), 1800)
    for number in range(int(scale.length_s / step_s) + 1):
        x = _LEFT + _WIDTH * number * step_s / scale.length_s
        yield Shape("grid", path=f"M{x:.1f} {_TOP:g}V{bottom:g}")
        yield Shape(x=f"{x:.1f}", y="14", text=f"{number * step_s:g} s")
    for name, y in lanes.items():
        yield Shape("row", path=f"M0 {y + _LANE / 2:g}H{right:g}")
        yield Shape("lane", "0", f"{y + 4:g}", text=_SHARED.get(name, name))
    for time_ns, what in ((faults_ended_ns, "the nemesis ends"), (healed_ns, "all faults have ended")):
        if time_ns:
            x = scale.at(time_ns)
            yield Shape("phase", path=f"M{x:.1f} {_TOP:g}V{bottom:g}", title=what)


# -- what was done to the clients -------------------------------------------------------------------------------------


def _faults(scale: Scale, lanes: Mapping[str, float], lines: list[Line]) -> Iterator[Shape]:
    heals = {line["id"]: int(line["at_ns"]) for line in lines if line["event"] == "heal"}
    for line in lines:
        if line["event"] != "fault" or line["target"] not in lanes:
            continue
        start_ns, y, kind = int(line["at_ns"]), lanes[line["target"]], str(line["fault"])
        end_ns = heals.get(line["id"], start_ns)
        x, width = scale.at(start_ns), scale.at(end_ns) - scale.at(start_ns)
        detail = f" ({line['detail']})" if line.get("detail") else ""
        lasted = f" for {(end_ns - start_ns) / _SECOND_NS:.2f} s" if end_ns > start_ns else ""
        title = _title(f"{kind}{detail}, {line['target']}, at {scale.seconds(start_ns):.2f} s{lasted}")
        family = family_of(kind)
        if width < 1.5:
            yield Shape(f"point f-{family}", path=f"M{x:.1f} {y - 12:g}l3.5 4-3.5 4-3.5-4z", title=title)
            continue
        top = y - _LANE / 2 + 1
        yield Shape(f"span f-{family}", f"{x:.1f}", f"{top:g}", f"{width:.1f}", f"{_LANE - 2:g}", title=title)
        if "kill" in kind or kind == "other_settings":
            yield Shape("killed", path=f"M{x - 3:.1f} {y - 3:g}l6 6m0-6l-6 6", title=title)
        elif kind.endswith(("paused", "stop_at_step", "zombie_again")) and width > 9:
            yield Shape("pause", path=f"M{x + 3:.1f} {top + 2:g}h1.5v5h-1.5zm3 0h1.5v5h-1.5z", title=title)


def _marks(scale: Scale, lanes: Mapping[str, float], lines: list[Line]) -> Iterator[Shape]:
    """Failpoints that clients ran into, and where a process was begun anew."""
    for line in lines:
        if line["client"] not in lanes:
            continue
        x, y = scale.at(int(line["at_ns"])), lanes[line["client"]]
        if line["event"] == "hit":
            title = _title(f"{line['action']} at {line['failpoint']}, at {scale.seconds(line['at_ns']):.2f} s")
            yield Shape("hit", path=f"M{x - 3:.1f} {y + 12:g}h6l-3-5z", title=title)
        elif line["event"] == "started" and line["incarnation"] > 1:
            title = _title(f"{line['process']} begins, at {scale.seconds(line['at_ns']):.2f} s")
            yield Shape("committed", path=f"M{x:.1f} {y - 4:g}l5 4-5 4z", title=title)


# -- what the clients did ---------------------------------------------------------------------------------------------


def _calls(scale: Scale, lines: list[Line]) -> dict[str, list[Bar]]:
    """Each client's attempts, by time. One without an answer ends with its process."""
    found: dict[str, list[Bar]] = {}
    open_calls: dict[tuple[str, str], Line] = {}
    last_ns: dict[str, int] = {}
    for line in lines:
        if line["event"] in ("call", "return"):
            key = (line["process"], line["work"])
            call = open_calls.pop(key, None)
            if line["event"] == "call":
                open_calls[key] = line
            elif call is not None:
                found.setdefault(line["client"], []).append(_bar(scale, call, line))
        last_ns[line["process"]] = int(line["at_ns"])
    for (process, work), call in open_calls.items():
        start, end = scale.at(call["at_ns"]), scale.at(last_ns[process])
        title = f"{work}: never answered, from {scale.seconds(call['at_ns']):.2f} s on"
        found.setdefault(call["client"], []).append(Bar(start, max(end, start + 3), "unanswered", title))
    return found


def _bar(scale: Scale, call: Line, answer: Line) -> Bar:
    start_ns, end_ns = int(call["at_ns"]), int(answer["at_ns"])
    outcome = answer["outcome"] if answer["outcome"] in _OUTCOMES else "failed"
    kind = f" {answer['kind']}" if answer.get("kind") else ""
    said = f": {answer['error']}" if answer.get("error") else ""
    instant = f", instant {answer['instant']}" if answer.get("instant") else ""
    title = (
        f"{call['work']}{kind} {answer['outcome']}{said}, at {scale.seconds(start_ns):.2f} s "
        f"for {(end_ns - start_ns) / 1e6:.0f} ms{instant}"
    )
    return Bar(scale.at(start_ns), scale.at(end_ns), outcome, title)


def _few(calls: Mapping[str, list[Bar]]) -> bool:
    return sum(map(len, calls.values())) <= _ELEMENTS_MAX


def _thinned(calls: Mapping[str, list[Bar]], size: float) -> dict[str, list[Bar]]:
    """Bars of one outcome that begin close together become one; nothing rare disappears."""
    found = {}
    for client, bars in calls.items():
        merged: dict[tuple[int, str], Bar] = {}
        for bar in bars:
            key = (int(bar.start / size), bar.outcome)
            other = merged.get(key)
            if other is not None:
                first = other.title.partition(_FIRST)[2] or other.title
                count = other.count + 1
                title = f"{count} calls {bar.outcome}{_FIRST}{first}"
                bar = Bar(min(bar.start, other.start), max(bar.end, other.end), bar.outcome, title, count)
            merged[key] = bar
        found[client] = list(merged.values())
    return found


def _bars(bars: Iterable[Bar], y: float) -> Iterator[Shape]:
    for bar in sorted(bars, key=lambda one: _OUTCOMES.index(one.outcome)):
        width = max(bar.end - bar.start, 0.7)
        yield Shape(bar.outcome, f"{bar.start:.1f}", f"{y - 4:g}", f"{width:.1f}", "8", title=_title(bar.title))


def _ticks(calls: Mapping[str, list[Bar]], lanes: Mapping[str, float]) -> Iterator[Shape]:
    """Where commits were acknowledged; one path for each lane."""
    for client, bars in calls.items():
        ends = sorted({round(bar.end, 0) for bar in bars if bar.outcome == "committed"})
        if ends:
            yield Shape("tick", path="".join(f"M{x:g} {lanes[client] - 7:g}v14" for x in ends))


def _reads(scale: Scale, lanes: Mapping[str, float], lines: list[Line]) -> Iterator[Shape]:
    """When readers saw something; one path for each lane."""
    found: dict[str, set[float]] = {}
    for line in lines:
        if line["event"] in ("seen", "snapshot"):
            found.setdefault(line["client"], set()).add(round(scale.at(int(line["at_ns"])), 0))
    for client, times in found.items():
        yield Shape("reader", path="".join(f"M{x:g} {lanes[client] - 4:g}v8" for x in sorted(times)))


def _title(text: str) -> str:
    """The text that is shown where a mouse points: one line, whatever an error text holds."""
    return re.sub(r"[^ -~]", "?", text)
