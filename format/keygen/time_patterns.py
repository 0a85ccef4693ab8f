"""Patterns of times as Joda-Time has them, which Hudi's timestamp-based key generators use: the common letters."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo

from lakelatch.errors import InvalidRequest

_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_NUMBERS = "yMdHmsS"
_COUNTS = {"y": range(1, 10), "S": range(1, 10), "Z": range(1, 3)}  # of one letter; others once or twice
_PRINTED: dict[str, Callable[[datetime, int], str]] = {
    "y": lambda time, count: f"{time.year % 100:02d}" if count == 2 else f"{time.year:0{count}d}",
    "M": lambda time, count: f"{time.month:0{count}d}",
    "d": lambda time, count: f"{time.day:0{count}d}",
    "H": lambda time, count: f"{time.hour:0{count}d}",
    "m": lambda time, count: f"{time.minute:0{count}d}",
    "s": lambda time, count: f"{time.second:0{count}d}",
    "S": lambda time, count: f"{time.microsecond:06d}"[:count].ljust(count, "0"),
}


@dataclass(frozen=True)
class TimePattern:
    """One pattern: (letter, count) for each field, and ("", text) for text between them."""

    text: str
    tokens: tuple[tuple[str, int | str], ...]

    @classmethod
    def parse(cls, text: str, option: str, reading: bool = False) -> TimePattern:
        """A pattern to print, or for `reading`. Errors: `InvalidRequest`, for letters that are not known as well."""
        tokens: list[tuple[str, int | str]] = []
        end = 0
        for found in _TOKEN.finditer(text):
            if found.start() != end:
                break
            end, letter = found.end(), found[2]
            if letter is None:
                quoted = found[1]
                tokens.append(("", found[0] if quoted is None else quoted.replace("''", "'") or "'"))
                continue
            letter, count = "y" if letter == "Y" else letter, len(found[0])
            known = letter in _PRINTED or (reading and letter == "Z")
            if not known or count not in _COUNTS.get(letter, range(1, 3)) or (reading and (letter, count) == ("y", 2)):
                raise InvalidRequest(
                    f"{option}={text!r} has {found[0]!r}: known are yyyy, MM, dd, HH, mm, ss, SSS, texts in single "
                    "quotes, and Z where times are read; use these",
                    option=option,
                )
            tokens.append((letter, count))
        letters = [letter for letter, _ in tokens]
        if end != len(text) or "y" not in letters or any(letters.count(one) > 1 for one in set(letters) - {""}):
            raise InvalidRequest(f"{option}={text!r} is no pattern of times: use one like yyyy/MM/dd", option=option)
        return cls(text, tuple(tokens))

    @property
    def has_offset(self) -> bool:
        """Whether texts of this pattern say how far they are from UTC."""
        return any(letter == "Z" for letter, _ in self.tokens)

    @property
    def finest(self) -> str:
        """The letter of the finest unit that the pattern shows."""
        return max((letter for letter, _ in self.tokens if letter in _NUMBERS), key=_NUMBERS.index, default="y")

    def printed(self, time: datetime) -> str:
        return "".join(str(what) if not letter else _PRINTED[letter](time, int(what)) for letter, what in self.tokens)

    def read_ms(self, text: str, zone: tzinfo | None) -> int | None:
        """The milliseconds since 1970 of a text, in a zone unless it says its offset; None if it is no such text."""
        found = self._regex().fullmatch(text)
        if found is None:
            return None
        parts = found.groupdict()
        defaults = zip("yMdHms", (1970, 1, 1, 0, 0, 0), strict=True)
        year, month, day, hour, minute, second = (int(parts.get(letter) or least) for letter, least in defaults)
        micros = int((parts.get("S") or "0")[:3].ljust(3, "0")) * 1000
        offset = parts.get("Z")
        try:
            own = _zone_of(offset) if offset else zone
            time = datetime(year, month, day, hour, minute, second, micros, own)
            exact = time.astimezone(timezone.utc)
        except (ValueError, OverflowError):
            return None
        if exact.astimezone(time.tzinfo).replace(tzinfo=None) != time.replace(tzinfo=None):
            return None  # clocks were put forward: there is no such time in the zone
        return (exact - _EPOCH) // timedelta(milliseconds=1)

    def _regex(self) -> re.Pattern[str]:
        """The expression that parses as Joda does: each number as long as possible; letters in any case."""
        parts = []
        for at, (letter, what) in enumerate(self.tokens):
            following = self.tokens[at + 1][0] if at + 1 < len(self.tokens) else ""
            if not letter:
                parts.append(re.escape(str(what)))
            elif letter == "Z":
                parts.append("(?P<Z>Z|[+-][0-9]{2}(?::?[0-9]{2})?)")
            else:
                own = {"y": what if following and following in _NUMBERS else 9, "S": what}
                most = own.get(letter, 2)
                parts.append(f"(?=(?P<{letter}>[0-9]{{1,{most}}}))(?P={letter})")
        return re.compile("".join(parts), re.IGNORECASE)


def _zone_of(offset: str) -> timezone:
    if offset in "Zz":
        return timezone.utc
    minutes = int(offset[1:3]) * 60 + int(offset[3:].lstrip(":") or 0)
    return timezone(timedelta(minutes=-minutes if offset[0] == "-" else minutes))
