"""Instants: milliseconds since 1970 as Hudi writes them, `yyyyMMddHHmmssSSS` in UTC."""

from __future__ import annotations

import re
from datetime import date, timedelta
from functools import lru_cache

from lakelatch.errors import InvalidRequest

_EPOCH = date(1970, 1, 1)
_DAY_MS = 86_400_000
_END_MS = (date.max - _EPOCH).days * _DAY_MS + _DAY_MS
_END_OF_SECOND = "999"
_BEGINNING = "0" * 17
_CALENDAR = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?:[ T]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{3}))?(?:Z|\+00:00)?)?"
)


def to_instant(time_ms: int) -> str:
    """The 17 digits of a time in milliseconds since 1970; `InvalidRequest` outside of the years 1970 to 9999."""
    if not 0 <= time_ms < _END_MS:
        raise InvalidRequest(f"the time {time_ms} ms is not in the years 1970 to 9999: look at this machine's clock")
    day, rest_ms = divmod(time_ms, _DAY_MS)
    seconds, milliseconds = divmod(rest_ms, 1000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{_day_digits(day)}{hour:02d}{minute:02d}{second:02d}{milliseconds:03d}"


def to_ms(instant: str) -> int:
    """The time of an instant, in milliseconds since 1970.

    One of 14 digits, as early Hudi wrote them, is the end of its second, which is how Hudi compares it.
    """
    if len(instant) not in (14, 17) or not (instant.isascii() and instant.isdigit()):
        raise InvalidRequest(f"{instant!r} is no instant: it takes the 17 digits of yyyyMMddHHmmssSSS, in UTC")
    hour, minute, second = int(instant[8:10]), int(instant[10:12]), int(instant[12:14])
    try:
        day = _day_number(instant[:8])
    except ValueError:
        day = -1
    if day < 0 or hour > 23 or minute > 59 or second > 59:
        raise InvalidRequest(f"{instant!r} is no instant: there is no such time from 1970 on")
    return day * _DAY_MS + ((hour * 60 + minute) * 60 + second) * 1000 + int(instant[14:] or _END_OF_SECOND)


def readable(instant: str) -> str:
    """An instant as people read it, which `parse_user_instant` reads back: `2026-11-21 12:00:00.123Z`."""
    text = to_instant(to_ms(instant))
    return f"{text[:4]}-{text[4:6]}-{text[6:8]} {text[8:10]}:{text[10:12]}:{text[12:14]}.{text[14:]}Z"


def parse_user_instant(text: str) -> str:
    """The 17-digit instant that a user means, in UTC.

    Taken are `yyyyMMddHHmmss[SSS]`, `yyyy-MM-dd HH:mm:ss[.SSS]` (or with `T`, and with `Z` at its end), `yyyy-MM-dd`,
    and zeros for 'before everything'. As in Hudi, a time without milliseconds is the end of its second, so that a read
    as of that second sees all of it; a day is its beginning.
    """
    stripped = text.strip()
    if stripped and not stripped.strip("0"):
        return _BEGINNING
    if stripped.isascii() and stripped.isdigit():
        return to_instant(to_ms(stripped))
    found = _CALENDAR.fullmatch(stripped)
    if found is None:
        raise InvalidRequest(
            f"{text!r} is no time: write it as 2026-11-21, 2026-11-21 12:00:00, 2026-11-21 12:00:00.123 or "
            "20261121120000123; all are taken as UTC"
        )
    year, month, day, hour, minute, second, milliseconds = found.groups()
    time_of_day = "000000000" if hour is None else f"{hour}{minute}{second}{milliseconds or _END_OF_SECOND}"
    return to_instant(to_ms(f"{year}{month}{day}{time_of_day}"))


@lru_cache(maxsize=1024)  # a timeline's instants fall on few days
def _day_digits(day: int) -> str:
    return (_EPOCH + timedelta(days=day)).isoformat().replace("-", "")


@lru_cache(maxsize=1024)
def _day_number(digits: str) -> int:
    return (date(int(digits[:4]), int(digits[4:6]), int(digits[6:8])) - _EPOCH).days
