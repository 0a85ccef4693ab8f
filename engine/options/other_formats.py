"""Options that users of other formats set out of habit: what each is called here, for the error that refuses it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakelatch.errors import InvalidRequest
from lakelatch.timegen.instant_time import parse_user_instant, to_instant

_DELTA, _ICEBERG, _HUDI_SQL, _FILES = "Delta Lake", "Iceberg", "Hudi's SQL", "Spark's file sources"
_AS_OF = "as.of.instant"
_BEGIN, _END = "hoodie.datasource.read.begin.instanttime", "hoodie.datasource.read.end.instanttime"
_START = "hoodie.datasource.streaming.startOffset"
_INCREMENTAL = "hoodie.datasource.query.type=incremental"
_OPERATION = "hoodie.datasource.write.operation"
_A_TIME = "<a completion time>, which `Table.history()` lists"
_WINDOW = f"set {_INCREMENTAL} and"
_CHANGES = f"set {_INCREMENTAL}, {_BEGIN} and hoodie.datasource.query.incremental.format=cdc, or call `Table.changes`"
_AS_STREAM = f"(in a stream {_START})"
_NEVER_FAILS = "remove it: a stream goes on whatever was changed or deleted, and does not tell of it"
_ONE_TABLE = "remove it: all of one table is read, whose folder is the path"
_NO_SCHEMA = "set mergeSchema=true, which adds and widens columns; for other types write to a new table"
_PARTITION = "hoodie.datasource.write.partitionpath.field"
_BATCH = (
    "hoodie.datasource.write.streaming.checkpoint.identifier={value} and lakelatch.write.batch.number, with lakelatch"
)
_NO_VERSION = "tables have no version numbers"


@dataclass(frozen=True)
class OtherOption:
    """An option of another format. `instead` says what to do, with the given value where it has `{value}`.

    With `time` the value is a time as that format takes it, and stands as this one takes it.
    """

    name: str
    whose: str
    instead: str
    time: Callable[[str], str] | None = None

    def way_out(self, value: str) -> str:
        """What to do, for an option that was given with this value."""
        try:
            shown = value if self.time is None else self.time(value)
        except (InvalidRequest, ValueError, OverflowError):
            shown = "2026-11-21 12:00:00"
        return self.instead.format(value=shown)

    def shown(self) -> str:
        """The same for a page, without a value."""
        return self.instead.format(value="...")


def _text_time(value: str) -> str:
    """A time as it was given, if it is one here."""
    parse_user_instant(value)
    return value.strip()


def _ms_time(value: str) -> str:
    return to_instant(int(value))


_READS = (
    OtherOption("versionAsOf", _DELTA, f"set {_AS_OF}={_A_TIME}: {_NO_VERSION}"),
    OtherOption("timestampAsOf", _DELTA, f"set {_AS_OF}={{value}}, which is taken as UTC", _text_time),
    OtherOption("readChangeFeed", _DELTA, _CHANGES),
    OtherOption("readChangeData", _DELTA, _CHANGES),
    OtherOption("startingVersion", _DELTA, f"{_WINDOW} {_BEGIN}={_A_TIME} {_AS_STREAM}: {_NO_VERSION}"),
    OtherOption(
        "startingTimestamp", _DELTA, f"{_WINDOW} {_BEGIN}={{value}} {_AS_STREAM}, which is taken as UTC", _text_time
    ),
    OtherOption("endingVersion", _DELTA, f"{_WINDOW} {_END}={_A_TIME}: {_NO_VERSION}"),
    OtherOption("endingTimestamp", _DELTA, f"{_WINDOW} {_END}={{value}}, which is taken as UTC", _text_time),
    OtherOption("ignoreDeletes", _DELTA, _NEVER_FAILS),
    OtherOption("ignoreChanges", _DELTA, _NEVER_FAILS),
    OtherOption("skipChangeCommits", _DELTA, _NEVER_FAILS),
    OtherOption("maxBytesPerTrigger", _DELTA, "set maxFilesPerTrigger, or lakelatch.read.stream.max.commits"),
    OtherOption("snapshot-id", _ICEBERG, f"set {_AS_OF}={_A_TIME}: {_NO_VERSION}"),
    OtherOption("as-of-timestamp", _ICEBERG, f"set {_AS_OF}={{value}}", _ms_time),
    OtherOption("start-snapshot-id", _ICEBERG, f"{_WINDOW} {_BEGIN}={_A_TIME}"),
    OtherOption("end-snapshot-id", _ICEBERG, f"{_WINDOW} {_END}={_A_TIME}"),
    OtherOption("start-timestamp", _ICEBERG, f"{_WINDOW} {_BEGIN}={{value}}", _ms_time),
    OtherOption("end-timestamp", _ICEBERG, f"{_WINDOW} {_END}={{value}}", _ms_time),
    OtherOption("stream-from-timestamp", _ICEBERG, f"set {_START}={{value}}", _ms_time),
    OtherOption("streaming-max-files-per-micro-batch", _ICEBERG, "set maxFilesPerTrigger={value}"),
    OtherOption("streaming-skip-delete-snapshots", _ICEBERG, _NEVER_FAILS),
    OtherOption("streaming-skip-overwrite-snapshots", _ICEBERG, _NEVER_FAILS),
    OtherOption("branch", _ICEBERG, f"remove it: there are no branches; set {_AS_OF} for an earlier moment"),
    OtherOption("tag", _ICEBERG, f"remove it: a savepoint keeps a moment; set {_AS_OF}={_A_TIME}"),
    OtherOption("paths", _FILES, "load one path: it is the folder of one table, whose partitions are conditions on it"),
    OtherOption("recursiveFileLookup", _FILES, _ONE_TABLE),
    OtherOption("pathGlobFilter", _FILES, _ONE_TABLE),
    OtherOption("basePath", _FILES, _ONE_TABLE),
    OtherOption("modifiedAfter", _FILES, f"{_WINDOW} {_BEGIN}={{value}}, which is taken as UTC", _text_time),
    OtherOption("modifiedBefore", _FILES, f"set {_AS_OF}={{value}}, which is taken as UTC", _text_time),
)
_WRITES = (
    OtherOption("overwriteSchema", _DELTA, _NO_SCHEMA),
    OtherOption(
        "replaceWhere",
        _DELTA,
        f"set {_OPERATION}=insert_overwrite, which replaces the partitions that the frame touches",
    ),
    OtherOption(
        "partitionOverwriteMode",
        "Spark",
        f"set {_OPERATION}=insert_overwrite for the partitions that the frame touches (dynamic), or "
        "insert_overwrite_table for all of the table (static)",
    ),
    OtherOption("txnAppId", _DELTA, f"set {_BATCH}.write or write_batch"),
    OtherOption("txnVersion", _DELTA, "set lakelatch.write.batch.number={value}, or call lakelatch.write_batch"),
    OtherOption("userMetadata", _DELTA, "remove it: options are not copied into commits"),
    OtherOption("delta.enableChangeDataFeed", _DELTA, "set hoodie.table.cdc.enabled={value} when the table is made"),
    OtherOption("merge-schema", _ICEBERG, "set mergeSchema={value}"),
    OtherOption(
        "overwrite-mode", _ICEBERG, f"set {_OPERATION}=insert_overwrite, which replaces the partitions of the frame"
    ),
    OtherOption("target-file-size-bytes", _ICEBERG, "set hoodie.bucket.index.num.buckets when the table is made"),
    OtherOption("primaryKey", _HUDI_SQL, "set hoodie.datasource.write.recordkey.field={value}"),
    OtherOption("preCombineField", _HUDI_SQL, "set hoodie.datasource.write.precombine.field={value}"),
    OtherOption("orderingFields", _HUDI_SQL, "set hoodie.datasource.write.precombine.field={value}"),
    OtherOption("partitionBy", "Spark's method", f"set {_PARTITION}={{value}}"),
    OtherOption("partitionColumns", "other formats", f"set {_PARTITION}={{value}}"),
)
OTHER_OPTIONS = {one.name.lower(): one for one in (*_READS, *_WRITES)}


def elsewhere(key: str, value: str) -> str | None:
    """What to do about an option that another format has, in any case of its letters; None for all others."""
    other = OTHER_OPTIONS.get(key.lower())
    return None if other is None else f"it is {other.name} of {other.whose}; {other.way_out(value)}"


def rows() -> list[str]:
    """The options as a table for docs/options.md."""
    return [
        "| option of others | instead |",
        "| --- | --- |",
        *(f"| `{one.name}` ({one.whose}) | {one.shown()} |" for one in (*_READS, *_WRITES)),
    ]
