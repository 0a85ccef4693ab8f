"""Instants as text: 17 digits, `yyyyMMddHHmmssSSS`, in UTC."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from functools import lru_cache

from lakelatch.errors import InvalidRequest

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_DAY_MS = 86_400_000
_USER_FORM = re.compile(r"(\d{4})-(\d{2})-(\d{2})(?:[ T](\d{2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,6}))?)?)?(?:Z|\+00:00)?")


@lru_cache(maxsize=1024)
def _day_text(day: int) -> str:
    return (_EPOCH + timedelta(days=day)).strftime("%Y%m%d")


@lru_cache(maxsize=1024)
def _day_start_ms(text: str) -> int:
    day = datetime(int(text[:4]), int(text[4:6]), int(text[6:8]), tzinfo=timezone.utc)
    return (day - _EPOCH).days * _DAY_MS


def to_instant(time_ms: int) -> str:
    """Milliseconds since 1970 as an instant."""
    day, rest = divmod(time_ms, _DAY_MS)
    seconds, milliseconds = divmod(rest, 1000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{_day_text(day)}{hour:02d}{minute:02d}{second:02d}{milliseconds:03d}"


def to_ms(instant: str) -> int:
    """An instant as milliseconds since 1970; one of 14 digits means the start of its second."""
    if len(instant) not in (14, 17) or not (instant.isascii() and instant.isdigit()):
        raise InvalidRequest(f"{instant!r} is no instant: 17 digits are needed, yyyyMMddHHmmssSSS in UTC")
    hour, minute, second = int(instant[8:10]), int(instant[10:12]), int(instant[12:14])
    if hour > 23 or minute > 59 or second > 59:
        raise InvalidRequest(f"{instant!r} is no instant: its time of day does not exist")
    try:
        start_ms = _day_start_ms(instant[:8])
    except ValueError:
        raise InvalidRequest(f"{instant!r} is no instant: its day does not exist") from None
    return start_ms + ((hour * 60 + minute) * 60 + second) * 1000 + int(instant[14:17] or 0)


def parse_user_instant(text: str) -> str:
    """The instant that a user means by `20261121120000[123]`, `2026-11-21`, or `2026-11-21 12:00:00[.123]`, in UTC.

    A form without milliseconds means the first one of its second (a day: its first one), as in Hudi.
    """
    stripped = text.strip()
    if stripped.isascii() and stripped.isdigit():
        if set(stripped) == {"0"}:  # Hudi's way to say 'from the beginning'
            return "0" * 17
        return to_instant(to_ms(stripped))
    found = _USER_FORM.fullmatch(stripped)
    if found is None:
        raise InvalidRequest(
            f"{text!r} is no time: write 2026-11-21 12:00:00.000 or 20261121120000000 (both are taken as UTC)"
        )
    year, month, day, hour, minute, second, fraction = found.groups()
    milliseconds = f"{(fraction or '0'):<03s}"[:3].replace(" ", "0")
    digits = f"{year}{month}{day}{hour or '00'}{minute or '00'}{second or '00'}{milliseconds}"
    return to_instant(to_ms(digits))
