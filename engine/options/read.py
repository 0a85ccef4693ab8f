"""What a read asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakelatch.engine.options.write import (
    AS_OF,
    BEGIN_INSTANT,
    CDC,
    COLUMNS,
    END_INSTANT,
    INCREMENTAL,
    INCREMENTAL_FORMAT,
    LATEST_STATE,
    QUERY_TYPE,
    QUERY_TYPES,
    READ_INDEX,
    READ_META,
    READ_VERIFY,
    SNAPSHOT,
    normalise,
)
from lakelatch.errors import InvalidRequest
from lakelatch.format.expected.missing import Expects, archived_too, known
from lakelatch.option_values import flag, one_of
from lakelatch.storage.options import StorageOptions
from lakelatch.timegen.instant_time import parse_user_instant


@dataclass(frozen=True)
class ReadOptions:
    """What a read asks for; times are 17-digit instants.

    With `images` it is of what commits changed; `by_index` may find its files in the file index, and `verify` holds
    what all writes name against the folders. `meta_columns` adds Hudi's five to the columns, or to the table's where
    none are named.
    """

    query_type: str
    as_of: str | None
    begin: str | None
    end: str | None
    columns: tuple[str, ...] | None
    meta_columns: bool
    images: bool
    by_index: bool
    verify: bool
    storage: StorageOptions

    @property
    def expects(self) -> Expects:
        """Which writes' files have to be there: all, or those of which this process knows without a request."""
        return archived_too if self.verify else known

    @classmethod
    def parse(cls, options: Mapping[str, object] | None) -> ReadOptions:
        """Errors: `InvalidRequest`, naming the option, its value and what is possible."""
        values = normalise(options)
        query_type = one_of(values, QUERY_TYPE, QUERY_TYPES, SNAPSHOT)
        times = {key: parse_user_instant(values[key]) for key in (AS_OF, BEGIN_INSTANT, END_INSTANT) if key in values}
        if query_type == INCREMENTAL and BEGIN_INSTANT not in times:
            raise InvalidRequest(f"{QUERY_TYPE}=incremental needs {BEGIN_INSTANT}: the time after which to read")
        if query_type != INCREMENTAL and (BEGIN_INSTANT in times or END_INSTANT in times):
            raise InvalidRequest(f"{BEGIN_INSTANT} and {END_INSTANT} belong to {QUERY_TYPE}=incremental: set it")
        if query_type == INCREMENTAL and AS_OF in times:
            raise InvalidRequest(f"{AS_OF} does not go with {QUERY_TYPE}=incremental: use {END_INSTANT}")
        images = one_of(values, INCREMENTAL_FORMAT, (LATEST_STATE, CDC), LATEST_STATE) == CDC
        if images and query_type != INCREMENTAL:
            raise InvalidRequest(f"{INCREMENTAL_FORMAT}={CDC} belongs to {QUERY_TYPE}=incremental: set it")
        return cls(
            query_type,
            times.get(AS_OF),
            times.get(BEGIN_INSTANT),
            times.get(END_INSTANT),
            _columns(values),
            flag(values, READ_META),
            images,
            flag(values, READ_INDEX, True),
            flag(values, READ_VERIFY, False),
            StorageOptions.from_options(values),
        )


def _columns(values: Mapping[str, str]) -> tuple[str, ...] | None:
    if COLUMNS not in values:
        return None
    columns = tuple(name.strip() for name in values[COLUMNS].split(",") if name.strip())
    if not columns:
        raise InvalidRequest(f"{COLUMNS} is empty: name columns, separated by commas")
    return columns
