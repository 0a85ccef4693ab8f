"""Options that users of other formats set out of habit, and their names here, for the error that refuses them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakelatch.engine.options.batch import BATCH_APPLICATION, BATCH_NUMBER
from lakelatch.engine.options.read import AS_OF, BEGIN_INSTANT, END_INSTANT, INCREMENTAL, INCREMENTAL_FORMAT, QUERY_TYPE
from lakelatch.engine.options.write import OPERATION, PARTITION_FIELD
from lakelatch.errors import InvalidRequest
from lakelatch.timegen.instant_time import parse_user_instant, to_instant

_START = "hoodie.datasource.streaming.startOffset"
_INCREMENTAL = f"{QUERY_TYPE}={INCREMENTAL}"
_A_TIME = "<a completion time>, which `Table.history()` lists"
_WINDOW = f"set {_INCREMENTAL} and"
_CHANGES = f"set {_INCREMENTAL}, {BEGIN_INSTANT} and {INCREMENTAL_FORMAT}=cdc, or call `Table.changes`"
_AS_STREAM = f"(in a stream {_START})"
_NEVER_FAILS = "remove it: a stream continues after changes and deletes, and does not report them"
_ONE_TABLE = "remove it: all of one table is read, whose folder is the path"
_BATCH = f"{BATCH_APPLICATION}={{value}} and {BATCH_NUMBER}, with lakelatch"
_NO_VERSION = "tables have no version numbers"


@dataclass(frozen=True)
class OtherOption:
    """An option of another format, and what to do instead.

    `instead` has `{value}` where the given value belongs, and `{time}` or `{ms}` for a time, as it is taken here.
    """

    name: str
    whose: str
    instead: str

    def way_out(self, value: str) -> str:
        """The advice for an option that was given with this value."""
        return self.instead.format(value=value, time=_or_example(_text_time, value), ms=_or_example(_ms_time, value))


def _or_example(time: Callable[[str], str], value: str) -> str:
    try:
        return time(value)
    except (InvalidRequest, ValueError, OverflowError):
        return "2026-11-21 12:00:00"


def _text_time(value: str) -> str:
    """A time as it was given, if it is one here."""
    parse_user_instant(value)
    return value.strip()


def _ms_time(value: str) -> str:
    return to_instant(int(value))


_INSTEAD = {
    "Delta Lake": {
        "versionAsOf": f"set {AS_OF}={_A_TIME}: {_NO_VERSION}",
        "timestampAsOf": f"set {AS_OF}={{time}}, which is taken as UTC",
        "readChangeFeed": _CHANGES,
        "readChangeData": _CHANGES,
        "startingVersion": f"{_WINDOW} {BEGIN_INSTANT}={_A_TIME} {_AS_STREAM}: {_NO_VERSION}",
        "startingTimestamp": f"{_WINDOW} {BEGIN_INSTANT}={{time}} {_AS_STREAM}, which is taken as UTC",
        "endingVersion": f"{_WINDOW} {END_INSTANT}={_A_TIME}: {_NO_VERSION}",
        "endingTimestamp": f"{_WINDOW} {END_INSTANT}={{time}}, which is taken as UTC",
        "ignoreDeletes": _NEVER_FAILS,
        "ignoreChanges": _NEVER_FAILS,
        "skipChangeCommits": _NEVER_FAILS,
        "maxBytesPerTrigger": "set maxFilesPerTrigger, or lakelatch.read.stream.max.commits",
        "overwriteSchema": "set mergeSchema=true, which adds and widens columns; for other types write to a new table",
        "replaceWhere": f"set {OPERATION}=insert_overwrite, which replaces the partitions that the frame touches",
        "txnAppId": f"set {_BATCH}.write or write_batch",
        "txnVersion": "set lakelatch.write.batch.number={value}, or call lakelatch.write_batch",
        "userMetadata": "remove it: options are not copied into commits",
        "delta.enableChangeDataFeed": "set hoodie.table.cdc.enabled={value} when the table is made",
    },
    "Iceberg": {
        "snapshot-id": f"set {AS_OF}={_A_TIME}: {_NO_VERSION}",
        "as-of-timestamp": f"set {AS_OF}={{ms}}",
        "start-snapshot-id": f"{_WINDOW} {BEGIN_INSTANT}={_A_TIME}",
        "end-snapshot-id": f"{_WINDOW} {END_INSTANT}={_A_TIME}",
        "start-timestamp": f"{_WINDOW} {BEGIN_INSTANT}={{ms}}",
        "end-timestamp": f"{_WINDOW} {END_INSTANT}={{ms}}",
        "stream-from-timestamp": f"set {_START}={{ms}}",
        "streaming-max-files-per-micro-batch": "set maxFilesPerTrigger={value}",
        "streaming-skip-delete-snapshots": _NEVER_FAILS,
        "streaming-skip-overwrite-snapshots": _NEVER_FAILS,
        "branch": f"remove it: there are no branches; set {AS_OF} for an earlier moment",
        "tag": f"remove it: a savepoint keeps a moment; set {AS_OF}={_A_TIME}",
        "merge-schema": "set mergeSchema={value}",
        "overwrite-mode": f"set {OPERATION}=insert_overwrite, which replaces the partitions of the frame",
        "target-file-size-bytes": "set hoodie.bucket.index.num.buckets when the table is made",
    },
    "Spark's file sources": {
        "paths": "load one path: it is the folder of one table, whose partitions are conditions on it",
        "recursiveFileLookup": _ONE_TABLE,
        "pathGlobFilter": _ONE_TABLE,
        "basePath": _ONE_TABLE,
        "modifiedAfter": f"{_WINDOW} {BEGIN_INSTANT}={{time}}, which is taken as UTC",
        "modifiedBefore": f"set {AS_OF}={{time}}, which is taken as UTC",
    },
    "Spark": {
        "partitionOverwriteMode": f"set {OPERATION}=insert_overwrite for the partitions that the frame touches "
        "(dynamic), or insert_overwrite_table for all of the table (static)"
    },
    "Hudi's SQL": {
        "primaryKey": "set hoodie.datasource.write.recordkey.field={value}",
        "preCombineField": "set hoodie.datasource.write.precombine.field={value}",
        "orderingFields": "set hoodie.datasource.write.precombine.field={value}",
    },
    "Spark's method": {"partitionBy": f"set {PARTITION_FIELD}={{value}}"},
    "other formats": {"partitionColumns": f"set {PARTITION_FIELD}={{value}}"},
}
OTHER_OPTIONS = {
    name.lower(): OtherOption(name, whose, instead)
    for whose, options in _INSTEAD.items()
    for name, instead in options.items()
}


def elsewhere(key: str, value: str) -> str | None:
    """The advice for an option of another format, whatever its case; None for all other options."""
    other = OTHER_OPTIONS.get(key.lower())
    return None if other is None else f"it is {other.name} of {other.whose}; {other.way_out(value)}"
