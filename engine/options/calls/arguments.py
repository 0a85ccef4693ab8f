"""Arguments of methods (times, names, frames of other libraries) as options and Arrow tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from lakelatch.engine.options.read import AS_OF, BEGIN_INSTANT, COLUMNS, END_INSTANT, INCREMENTAL, QUERY_TYPE, READ_META
from lakelatch.errors import InvalidRequest
from lakelatch.timegen.instant_time import parse_user_instant, to_instant

if TYPE_CHECKING:
    from lakelatch.engine.options.calls.typed import HudiOptions

Options: TypeAlias = "Mapping[str, object] | HudiOptions"  # editors complete the keys of the second
Time: TypeAlias = "str | datetime"
_UNNAMED = re.compile(r"__index_level_[0-9]+__")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def instant_of(time: Time) -> str:
    """The 17-digit instant of a time: a text as in options, or a datetime with a time zone."""
    if isinstance(time, str):
        return parse_user_instant(time)
    if not isinstance(time, datetime) or time.tzinfo is None:
        raise InvalidRequest(
            f"{time!r} is no time that can be placed: give a datetime with a zone (datetime.now(timezone.utc)), or a "
            "text in UTC such as '2026-11-21 12:00:00'"
        )
    return to_instant((time - _EPOCH) // timedelta(milliseconds=1))


def moment(as_of: Time | None) -> dict[str, object]:
    """The options of a read as of a time, or of now."""
    return {} if as_of is None else {AS_OF: instant_of(as_of)}


def window(after: Time, until: Time | None) -> dict[str, object]:
    """The options of an incremental read."""
    end = {} if until is None else {END_INSTANT: instant_of(until)}
    return {QUERY_TYPE: INCREMENTAL, BEGIN_INSTANT: instant_of(after), **end}


def merged(options: Options | None, more: Options | None = None) -> dict[str, object]:
    """Options, overridden by `more`; keys are compared without case, as in Spark."""
    given = [*(options or {}).items(), *(more or {}).items()]
    return {key.lower(): value for key, value in given}


def names_of(names: str | Iterable[str], what: str) -> str:
    """One name or several, as options have them. Errors: `InvalidRequest`."""
    found = [names] if isinstance(names, str) else list(names)
    for name in found:
        if not isinstance(name, str) or not name or "," in name:
            raise InvalidRequest(f"{what}={names!r}: name columns, which may not hold a comma", option=what)
    return ",".join(found)


def reading(options: Options, columns: Iterable[str] | None, meta_columns: bool | None) -> dict[str, object]:
    """The options of a read of some columns, with or without meta columns; None leaves the options as they are."""
    found = dict(options)
    if columns is not None:
        found[COLUMNS] = names_of(columns, "columns")
    if meta_columns is not None:
        found[READ_META] = meta_columns
    return found


def is_pandas(data: object) -> bool:
    """Whether this is a pandas frame; pandas is not imported to find out."""
    kinds = (f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}" for kind in type(data).__mro__)
    return "pandas.DataFrame" in kinds


def with_named_index(frame: Any) -> Any:
    """The pandas frame with the named levels of its index as columns. An index without a name is not data.

    Errors: `InvalidRequest` for a level with the name of a column.
    """
    names = [name for name in frame.index.names if name is not None]
    if not names:
        return frame
    try:
        return frame.reset_index(level=names)
    except ValueError as error:
        raise InvalidRequest(
            f"the index of the frame ({', '.join(map(str, names))}) cannot become columns ({error}): rename it, or "
            "leave it out with frame.reset_index(drop=True)"
        ) from error


def without_index(table: pa.Table) -> pa.Table:
    """The Arrow table without the columns of an unnamed pandas index (`__index_level_0__`)."""
    try:
        index = (table.schema.pandas_metadata or {}).get("index_columns", ())
    except ValueError:  # no JSON: not pandas' own
        return table
    unnamed = [name for name in index if isinstance(name, str) and _UNNAMED.fullmatch(name)]
    return table.drop_columns([name for name in unnamed if name in table.column_names])
