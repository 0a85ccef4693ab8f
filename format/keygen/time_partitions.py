"""Times as texts of folders, as Hudi's TimestampBasedKeyGenerator makes them under the same options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.errors import InvalidRequest
from lakelatch.format.avro import shown_type
from lakelatch.format.keygen.time_patterns import TimePattern
from lakelatch.timeline.table_config import TIME_OPTIONS

TYPE = f"{TIME_OPTIONS}timestamp.type"
UNIT = f"{TIME_OPTIONS}timestamp.scalar.time.unit"
INPUT = f"{TIME_OPTIONS}input.dateformat"
DELIMITER = f"{TIME_OPTIONS}input.dateformat.list.delimiter.regex"
INPUT_ZONE = f"{TIME_OPTIONS}input.timezone"
OUTPUT = f"{TIME_OPTIONS}output.dateformat"
OUTPUT_ZONE = f"{TIME_OPTIONS}output.timezone"
ZONE = f"{TIME_OPTIONS}timezone"
KNOWN_TIME_OPTIONS = (TYPE, UNIT, INPUT, DELIMITER, INPUT_ZONE, OUTPUT, OUTPUT_ZONE, ZONE)

_TEXTS = ("DATE_STRING", "MIXED")
_UNITS = {"UNIX_TIMESTAMP": "SECONDS", "EPOCHMILLISECONDS": "MILLISECONDS", "EPOCHMICROSECONDS": "MICROSECONDS"}
_MS = {"SECONDS": 1_000, "MINUTES": 60_000, "HOURS": 3_600_000, "DAYS": 86_400_000, "MILLISECONDS": 1}
_PER_MS = {"MICROSECONDS": 1_000, "NANOSECONDS": 1_000_000}
_FLOORS = {"s": "second", "m": "minute", "H": "hour", "d": "day", "M": "day", "y": "day"}
_OFFSET = re.compile(r"GMT([+-])([0-9]{1,2})(?::?([0-9]{2}))?")
_OF_THE_MACHINE = ("localtime", "posixrules")  # files among those of zones
_NULL_TIME = 1  # Hudi's time for null, in the column's unit


@dataclass(frozen=True)
class TimePartitions:
    """Converts the times of a column to texts. `unit` is None if the column has texts, which `inputs` parse."""

    kind: str
    unit: str | None
    inputs: tuple[TimePattern, ...]
    input_zone: str | None
    output: TimePattern
    output_zone: str

    @classmethod
    def of(cls, options: Mapping[str, str]) -> TimePartitions:
        """Errors: `InvalidRequest`, naming the option, its value and what is possible."""
        kind = options.get(TYPE, "").strip().upper()
        if kind not in (*_UNITS, *_TEXTS, "SCALAR"):
            known = ", ".join((*_UNITS, *_TEXTS, "SCALAR"))
            raise InvalidRequest(f"{TYPE}={kind!r}: it is needed, as one of {known}", option=TYPE)
        unit = None
        if kind not in _TEXTS:
            unit = _UNITS.get(kind) or options.get(UNIT, "SECONDS").strip().upper()
            if unit not in (*_MS, *_PER_MS):
                raise InvalidRequest(f"{UNIT}={unit}: it is one of {', '.join((*_MS, *_PER_MS))}", option=UNIT)
        if not options.get(OUTPUT, "").strip():
            raise InvalidRequest(f"{OUTPUT} is needed: the pattern of folders, as in yyyy/MM/dd", option=OUTPUT)
        if options.get(DELIMITER, ",") != ",":
            raise InvalidRequest(f"{DELIMITER}={options[DELIMITER]!r}: only ',' is known", option=DELIMITER)
        inputs = [one.strip() for one in options.get(INPUT, "").split(",") if one.strip()]
        if kind in _TEXTS and not inputs:
            raise InvalidRequest(f"{TYPE}={kind} needs {INPUT}: the pattern of the column's texts", option=INPUT)
        patterns = tuple(TimePattern.parse(one, INPUT, reading=True) for one in inputs) if kind in _TEXTS else ()
        output_zone = options.get(ZONE) or options.get(OUTPUT_ZONE)
        input_zone = options.get(ZONE) or options.get(INPUT_ZONE)
        if not output_zone or (input_zone is None and not all(one.has_offset for one in patterns)):
            raise InvalidRequest(
                f"{ZONE} is needed (or {INPUT_ZONE} and {OUTPUT_ZONE}): without one Hudi takes the machine's, and the "
                "folders of two machines would differ. UTC is one",
                option=ZONE,
            )
        for zone in filter(None, (input_zone, output_zone)):
            _zone(zone)
        return cls(kind, unit, patterns, input_zone, TimePattern.parse(options[OUTPUT], OUTPUT), output_zone)

    def check_type(self, field: str, kind: pa.DataType) -> None:
        """`InvalidRequest` for a column type of which Hudi would make no folder, or a senseless one."""
        types = pa.types
        if self.unit is None:
            fits = types.is_string(kind) or types.is_large_string(kind)
        elif types.is_timestamp(kind):  # to Hudi a number of microseconds
            fits = self.unit == "MICROSECONDS"
        elif types.is_date32(kind):  # and this one of days
            fits = self.unit == "DAYS"
        else:
            fits = types.is_integer(kind) or types.is_decimal(kind) or types.is_floating(kind)
        if not fits:
            raise InvalidRequest(
                f"the partition field {field!r} is {shown_type(kind)}, of which {TYPE}={self.kind} makes no folder: "
                "texts go with DATE_STRING, numbers with their unit, timestamps with EPOCHMICROSECONDS, and dates "
                f"with SCALAR and {UNIT}=DAYS",
                option=TYPE,
            )

    def texts(self, column: pa.ChunkedArray, field: str) -> pa.Array:
        """The text of each row. Errors: `InvalidRequest` for a value that is no time."""
        self.check_type(field, column.type)
        try:
            times = self._from_texts(column, field) if self.unit is None else self._from_numbers(column)
            zoned = times.cast(pa.timestamp("ms", _arrow_zone(self.output_zone)))
            local = pc.local_timestamp(zoned)
            if self.output.finest in _FLOORS:
                local = pc.floor_temporal(local, unit=_FLOORS[self.output.finest])
            distinct = local.dictionary_encode()
            names = [self.output.printed(time) for time in distinct.dictionary.to_pylist()]
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise InvalidRequest(
                f"a value of the partition field {field!r} is no time of 1 to 9999: {error}"
            ) from error
        return pa.array(names, pa.string()).take(distinct.indices)

    def _from_numbers(self, column: pa.ChunkedArray) -> pa.Array:
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz))
        if pa.types.is_date32(column.type):
            column = column.cast(pa.int32())
        if pa.types.is_decimal(column.type) or pa.types.is_floating(column.type):
            column = pc.trunc(column)
        numbers = pc.fill_null(column.combine_chunks().cast(pa.int64()), _NULL_TIME)
        unit = self.unit or ""
        if unit in _PER_MS:
            return pc.divide(numbers, _PER_MS[unit])  # towards zero, as Java divides
        return pc.multiply_checked(numbers, _MS[unit])

    def _from_texts(self, column: pa.ChunkedArray, field: str) -> pa.Array:
        distinct = column.combine_chunks().cast(pa.string()).dictionary_encode(null_encoding="encode")
        times = [self._ms_of(text, field) for text in distinct.dictionary.to_pylist()]
        return pa.array(times, pa.int64()).take(distinct.indices)

    def _ms_of(self, text: str | None, field: str) -> int:
        zone = None if self.input_zone is None else _zone(self.input_zone)
        if text is None:  # Hudi prints the time in the first pattern, and reads it again
            first = self.inputs[0]
            printed = TimePattern(first.text, tuple(one for one in first.tokens if one[0] != "Z"))
            shown = pc.local_timestamp(pa.scalar(_NULL_TIME, pa.timestamp("ms", _arrow_zone(self._null_zone)))).as_py()
            found = printed.read_ms(printed.printed(shown), _zone(self._null_zone))
            return found or 0
        found = next((ms for one in self.inputs if (ms := one.read_ms(text, zone)) is not None), None)
        if found is None:
            raise InvalidRequest(
                f"the value {text!r} of the partition field {field!r} is no time of the pattern "
                f"{','.join(one.text for one in self.inputs)} ({INPUT}): mend it, or drop the row"
            )
        return found

    @property
    def _null_zone(self) -> str:
        return self.input_zone or self.output_zone


def _zone(name: str) -> tzinfo:
    """Errors: `InvalidRequest` for an unknown zone, which Java would silently take for GMT."""
    offset = _OFFSET.fullmatch(name.strip())
    try:
        if offset is not None:
            minutes = int(offset[2]) * 60 + int(offset[3] or 0)
            return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
        if name.strip() in _OF_THE_MACHINE:
            raise ValueError("it is another one on another machine")
        return ZoneInfo(name.strip())
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidRequest(f"{ZONE}={name!r} is no zone: use one like UTC, GMT+08:00 or Europe/Paris") from error


def _arrow_zone(name: str) -> str:
    offset = _OFFSET.fullmatch(name.strip())
    return f"{offset[1]}{int(offset[2]):02d}:{offset[3] or '00'}" if offset else name.strip()
