"""The time axis of a picture: idle gaps are narrowed, with a break in the axis, so that work fills the picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lakelatch.timegen.instant_time import to_instant

_GAPS_SHARE = 0.5  # of the time with work: so wide are all narrowed gaps together, at most
_GAP_SHARE = 0.06  # and each of them
_NARROWED_FROM = 4.0  # times the width of a narrowed gap: a shorter one would hardly become shorter
_STEPS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)
_TICKS = 9
_APART = 0.07  # of the width: ticks that are nearer would be written over each other
_IN_SECONDS_MS = 600_000  # shorter spans are counted from their beginning


@dataclass(frozen=True)
class Gap:
    """An idle time that was narrowed: where it is on the axis, and how long it is."""

    left: float
    right: float
    length_ms: int

    @property
    def text(self) -> str:
        """Its length for people."""
        seconds = self.length_ms / 1000
        for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
            if seconds >= 2 * size:
                return f"{seconds / size:,.0f} {unit}"
        return f"{seconds:,.1f} s"


class TimeAxis:
    """Places of times (ms since 1970) between the first and the last of some spans, from 0 to `width`, in ms.

    Idle gaps, in which no span lies, are narrowed, the longest first: those that are half as long as all work, and more
    until what is idle is not longer than what is not.
    """

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        busy = _joined(spans)
        self.start_ms, self.end_ms = busy[0][0], busy[-1][1]
        idle = [(before[1], after[0]) for before, after in pairwise(busy)]
        work_ms = max(sum(right - left for left, right in busy), 1)
        width = work_ms * min(_GAP_SHARE, _GAPS_SHARE / max(len(idle), 1))
        left_idle: float = sum(right - left for left, right in idle)
        narrowed = set()
        for left, right in sorted(idle, key=lambda gap: gap[0] - gap[1]):
            if right - left > _NARROWED_FROM * width and (left_idle > work_ms or right - left > work_ms / 2):
                narrowed.add((left, right))
                left_idle -= right - left - width
        self.gaps: list[Gap] = []
        self._stretches: list[tuple[int, int, float]] = []  # from, to, and the place of its beginning
        place, begun_ms = 0.0, self.start_ms
        for left, right in sorted(narrowed):
            self._stretches.append((begun_ms, left, place))
            place += left - begun_ms
            self.gaps.append(Gap(place, place + width, right - left))
            place, begun_ms = place + width, right
        self._stretches.append((begun_ms, self.end_ms, place))
        self.width = max(place + self.end_ms - begun_ms, 1.0)

    def place(self, time_ms: int) -> float:
        """Where a time is; one in a narrowed gap is at its beginning."""
        for begun_ms, ended_ms, place in reversed(self._stretches):
            if time_ms >= begun_ms:
                return place + min(time_ms, ended_ms) - begun_ms
        return 0.0

    def ticks(self) -> list[tuple[float, str]]:
        """Places and their labels: seconds since the first instant, or for more than ten minutes times in UTC."""
        shown_s = self.width / 1000
        step_ms = 1000 * next((step for step in _STEPS_S if shown_s / step <= _TICKS), _STEPS_S[-1])
        if shown_s < _TICKS / 2:
            step_ms = max(int(self.width / _TICKS), 1)
        in_seconds = self.end_ms - self.start_ms < _IN_SECONDS_MS
        found: list[tuple[float, str]] = []
        day = ""
        for begun_ms, ended_ms, place in self._stretches:
            base_ms = self.start_ms if in_seconds else 0
            first_ms = begun_ms + (base_ms - begun_ms) % step_ms
            for time_ms in dict.fromkeys((begun_ms, *range(first_ms, ended_ms + 1, step_ms))):
                here = place + time_ms - begun_ms
                if found and here - found[-1][0] < _APART * self.width:
                    continue
                if in_seconds:
                    found.append((here, _seconds(time_ms - self.start_ms)))
                else:
                    date, clock = _clock(time_ms)
                    found.append((here, clock if date == day else f"{clock}\n{date}"))
                    day = date
        return found

    @property
    def unit(self) -> str:
        """The meaning of the labels."""
        return (
            "seconds since the first instant" if self.end_ms - self.start_ms < _IN_SECONDS_MS else "time of day in UTC"
        )


def _joined(spans: Iterable[tuple[int, int]]) -> Sequence[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for left, right in sorted(spans):
        if joined and left <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], right)
        else:
            joined.append((left, max(left, right)))
    return joined


def _seconds(passed_ms: int) -> str:
    return f"{passed_ms / 1000:.3f}".rstrip("0").rstrip(".")


def _clock(time_ms: int) -> tuple[str, str]:
    text = to_instant(time_ms)
    return f"{text[:4]}-{text[4:6]}-{text[6:8]}", f"{text[8:10]}:{text[10:12]}:{text[12:14]}"
