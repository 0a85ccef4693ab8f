"""The options of a read, and of a stream of reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lakelatch.errors import InvalidRequest
from lakelatch.format.expected.missing import Expects, archived_too, known
from lakelatch.option_values import Option, ParsedOptions, flag, names, one_of, option, whole
from lakelatch.storage.options import StorageOptions
from lakelatch.timegen.instant_time import parse_user_instant

QUERY_TYPE = "hoodie.datasource.query.type"
AS_OF = "as.of.instant"
BEGIN_INSTANT = "hoodie.datasource.read.begin.instanttime"
END_INSTANT = "hoodie.datasource.read.end.instanttime"
INCREMENTAL_FORMAT = "hoodie.datasource.query.incremental.format"
COLUMNS, READ_META = "columns", "lakelatch.read.meta.columns"
READ_INDEX, READ_VERIFY = "lakelatch.read.index", "lakelatch.read.verify"
READ_OVERLAYS = "lakelatch.read.overlays"
START_OFFSET = "hoodie.datasource.streaming.startoffset"  # Hudi writes it with a capital O
MAX_COMMITS = "lakelatch.read.stream.max.commits"
MAX_FILES = "maxfilespertrigger"  # Spark's own, for sources of files

SNAPSHOT, READ_OPTIMIZED, INCREMENTAL = "snapshot", "read_optimized", "incremental"
LATEST_STATE, CDC = "latest_state", "cdc"
EARLIEST, LATEST = "earliest", "latest"
UNLIMITED = 2**31 - 1
_FORMAT = Option(INCREMENTAL_FORMAT, one_of(LATEST_STATE, CDC), LATEST_STATE)


def _time(key: str, text: str) -> str:
    try:
        return parse_user_instant(text)
    except InvalidRequest as error:
        raise InvalidRequest(f"{key}={text!r}: {error.message}") from None


def _start(key: str, text: str) -> str:
    start = text.strip().lower()
    return start if start in (EARLIEST, LATEST) else _time(key, start)


def _columns(key: str, text: str) -> tuple[str, ...]:
    columns = names(key, text)
    if not columns:
        raise InvalidRequest(f"{key} is empty: name columns, separated by commas")
    return columns


@dataclass(frozen=True)
class ReadOptions(ParsedOptions):
    """The options of a read; times are 17-digit instants.

    With `images` it reads what commits changed. `by_index` lets it find its files in the file index, and `by_overlays`
    use and make overlays; `verify` checks that the files named by any write exist. `meta_columns` adds Hudi's five to
    the named columns, or to all of them.
    """

    also = (_FORMAT,)
    query_type: str = option(QUERY_TYPE, one_of(SNAPSHOT, READ_OPTIMIZED, INCREMENTAL), SNAPSHOT)
    as_of: str | None = option(AS_OF, _time)
    begin: str | None = option(BEGIN_INSTANT, _time)
    end: str | None = option(END_INSTANT, _time)
    columns: tuple[str, ...] | None = option(COLUMNS, _columns)
    meta_columns: bool = option(READ_META, flag, False)
    images: bool = False
    by_index: bool = option(READ_INDEX, flag, True)
    by_overlays: bool = option(READ_OVERLAYS, flag, True)
    verify: bool = option(READ_VERIFY, flag, False)
    storage: StorageOptions = field(default_factory=StorageOptions)

    @property
    def expects(self) -> Expects:
        """The writes whose files must exist: all, or those that this process knows without a request."""
        return archived_too if self.verify else known

    def completed(self, values: Mapping[str, str]) -> ReadOptions:
        incremental, images = self.query_type == INCREMENTAL, _FORMAT.of(values) == CDC
        if incremental and self.begin is None:
            raise InvalidRequest(f"{QUERY_TYPE}=incremental needs {BEGIN_INSTANT}: the time after which to read")
        if not incremental and (self.begin is not None or self.end is not None):
            raise InvalidRequest(f"{BEGIN_INSTANT} and {END_INSTANT} belong to {QUERY_TYPE}=incremental: set it")
        if incremental and self.as_of is not None:
            raise InvalidRequest(f"{AS_OF} does not go with {QUERY_TYPE}=incremental: use {END_INSTANT}")
        if images and not incremental:
            raise InvalidRequest(f"{INCREMENTAL_FORMAT}={CDC} belongs to {QUERY_TYPE}=incremental: set it")
        return replace(self, images=images)


@dataclass(frozen=True)
class StreamOptions(ParsedOptions):
    """Where a stream begins, and how much one batch takes. `start` is `earliest`, `latest` or a 17-digit instant."""

    start: str = option(START_OFFSET, _start, EARLIEST)
    max_commits: int = option(MAX_COMMITS, whole(1, UNLIMITED), UNLIMITED)
    max_files: int = option(MAX_FILES, whole(1, UNLIMITED), UNLIMITED)

    @property
    def limited(self) -> bool:
        """Whether a batch has a limit."""
        return self.max_commits < UNLIMITED or self.max_files < UNLIMITED

    def completed(self, values: Mapping[str, str]) -> StreamOptions:
        for key in (AS_OF, BEGIN_INSTANT, END_INSTANT, QUERY_TYPE, INCREMENTAL_FORMAT):
            if key in values:
                raise InvalidRequest(
                    f"{key}={values[key]}: a stream reads what completes after {START_OFFSET} ({EARLIEST}, {LATEST} or "
                    "a time), and never ends: remove it",
                    option=key,
                )
        return self
