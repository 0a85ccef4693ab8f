"""Options of Hudi jobs that change nothing here, so that a job can be pasted: ignored, or refused for some values.

An option listed here never changes what a write does. Either it has no effect, which is logged with the reason, or its
value asks for a different table and is refused. `.ci/options-page` lists them for users.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lakelatch.errors import InvalidRequest
from lakelatch.timeline.table_config import COMMIT_TIME, CUSTOM_KEYS, EVENT_TIME, TIMESTAMP_KEYS

_log = logging.getLogger("lakelatch.engine")

PAYLOAD_KEYS = ("hoodie.datasource.write.payload.class", "hoodie.compaction.payload.class")
_MODELS = "org.apache.hudi.common.model."
PAYLOADS = {
    f"{_MODELS}OverwriteWithLatestAvroPayload": COMMIT_TIME,
    f"{_MODELS}DefaultHoodieRecordPayload": EVENT_TIME,
    f"{_MODELS}EventTimeAvroPayload": EVENT_TIME,
}

_KEYGEN = "org.apache.hudi.keygen."


def _generators(class_name: str, kind: str) -> tuple[str, ...]:
    """All names that Hudi has for a kind of key generator."""
    return f"{_KEYGEN}{class_name}KeyGenerator", f"{_KEYGEN}{class_name}AvroKeyGenerator", kind, f"{kind}_AVRO"


_SIMPLE = _generators("Simple", "SIMPLE")
_COMPLEX = _generators("Complex", "COMPLEX")
_NO_PARTITIONS = _generators("Nonpartitioned", "NON_PARTITION")
_TIMESTAMP = _generators("TimestampBased", "TIMESTAMP")
_CUSTOM = _generators("Custom", "CUSTOM")
_GENERATORS = (*_SIMPLE, *_COMPLEX, *_NO_PARTITIONS, *_TIMESTAMP, *_CUSTOM)
KEY_GENERATOR_KEYS = (
    "hoodie.datasource.write.keygenerator.class",
    "hoodie.datasource.write.keygenerator.type",
    "hoodie.table.keygenerator.class",
    "hoodie.table.keygenerator.type",
)
_MERGERS = (f"{_MODELS}HoodieAvroRecordMerger", "org.apache.hudi.DefaultSparkRecordMerger")
_ON, _OFF = ("true",), ("false",)


@dataclass(frozen=True)
class Rule:
    """The rule for one option or, if its key ends in `*`, for all options with that prefix and no rule of their own.

    `allowed` are the values that ask for what is done anyway; others are refused. None: the value makes no difference.
    """

    key: str
    why: str
    allowed: tuple[str, ...] | None = None


_KEYS = "keys and folders are made as these key generators of Hudi's make them"


def _rules(why: str, *keys: str, allowed: tuple[str, ...] | None = None) -> Iterator[Rule]:
    """One rule for each key; a text holds several, separated by spaces."""
    return (Rule(key, why, allowed) for key in " ".join(keys).split())


RULES: tuple[Rule, ...] = (
    *_rules("a clean plans one at a time, for all partitions that have changed", "hoodie.clean.* hoodie.cleaner.*"),
    *_rules(
        "hoodie.keep.min.commits and hoodie.keep.max.commits say what is archived, as one level file a run",
        "hoodie.archive.* hoodie.archivelog.* hoodie.keep.* hoodie.commits.archival.*",
    ),
    *_rules(
        "each file group that a compaction takes becomes one base file, by one task",
        "hoodie.compact.* hoodie.compaction.* hoodie.log.compaction.* hoodie.datasource.compaction.*",
        "hoodie.table.services.*",
    ),
    *_rules(
        "a clustering rewrites each file group as one file of the same bucket: see lakelatch.cluster",
        "hoodie.clustering.* hoodie.datasource.clustering.*",
    ),
    *_rules(
        "tables are not registered in catalogs: register the folder there",
        "hoodie.datasource.hive_sync.* hoodie.datasource.meta.sync.* hoodie.datasource.meta_sync.* hoodie.meta.sync.*",
        "hoodie.meta_sync.* hoodie.gcp.bigquery.sync.*",
    ),
    *_rules("nothing is measured for Hudi's reporters: see CommitResult and `lakelatch timeline`", "hoodie.metrics.*"),
    *_rules("there are no callbacks after a commit", "hoodie.write.commit.callback.*"),
    *_rules(
        "a bucket is one file of its partition: the number of buckets decides how large files are",
        "hoodie.parquet.max.file.size hoodie.parquet.small.file.limit",
    ),
    *_rules(
        "it is Hudi's own filter of record keys: a bucket index looks none up", "hoodie.parquet.bloom.filter.enabled"
    ),
    *_rules(
        "each task writes one file for each bucket that it meets, and a compaction one base file",
        "hoodie.parquet.* hoodie.logfile.* hoodie.copyonwrite.* hoodie.record.size.* hoodie.hfile.* hoodie.orc.*",
    ),
    *_rules(
        "the bucket index looks nothing up",
        "hoodie.bloom.* hoodie.simple.index.* hoodie.global.simple.index.* hoodie.index.bloom.* hoodie.record.index.*",
        "hoodie.bucket.index.query.*",
    ),
    *_rules(
        "Spark decides how many tasks there are, or the parallelism of the operation",
        "hoodie.rollback.parallelism hoodie.finalize.write.parallelism hoodie.markers.delete.parallelism",
        "hoodie.bulkinsert.user.defined.* hoodie.write.executor.*",
    ),
    *_rules(
        "rows are sorted within each base file, by record key or the sort columns, and a key's hash decides its file",
        "hoodie.bulkinsert.sort.mode",
    ),
    *_rules("rows are written in one way only", "hoodie.datasource.write.row.writer.enable"),
    *_rules(
        "a task holds 128 MiB of the logs that it merges, and spills the rest to a temporary file",
        "hoodie.memory.* hoodie.common.spillable.* hoodie.common.diskmap.*",
    ),
    *_rules(
        "files are listed when they are needed",
        "hoodie.filesystem.* hoodie.consistency.check.* hoodie.file.index.* hoodie.datasource.read.file.index.*",
        "hoodie.enable.data.skipping",
    ),
    *_rules(
        "hoodie.write.markers.type decides whether there is a marker server",
        "hoodie.embed.timeline.server hoodie.embed.timeline.server.* hoodie.markers.*",
    ),
    *_rules("every rollback is by markers", "hoodie.rollback.using.markers"),
    *_rules("lakelatch keeps no metadata table, and reads none", "hoodie.metadata.*"),
    *_rules(
        "a completed commit is never reported as failed: `CommitResult.services` names the service that failed",
        "hoodie.fail.writes.on.inline.table.service.exception",
    ),
    *_rules(
        "a frame's columns are always checked against the table's",
        "hoodie.avro.schema.* hoodie.datasource.write.schema.*",
    ),
    *_rules(
        "a batch that fails is an error, and is tried again as the query is", "hoodie.datasource.write.streaming.*"
    ),
    *_rules("it is for Hudi's own ingestion tool", "hoodie.streamer.* hoodie.deltastreamer.*"),
    *_rules("a statement of SQL does what the guide says of it, and has no modes", "hoodie.sql.* hoodie.spark.sql.*"),
    *_rules(
        "it is for Hudi's INSERT OVERWRITE; the operation says what is replaced", "hoodie.datasource.overwrite.mode"
    ),
    *_rules("the table is called by hoodie.table.name", "hoodie.datasource.write.table.name"),
    *_rules("options are not copied into commits", "hoodie.datasource.write.commitmeta.key.prefix"),
    *_rules("a table is never upgraded by a write", "hoodie.write.auto.upgrade"),
    *_rules(
        "a table has one row of each key, also of keys that come twice in an insert", "hoodie.combine.before.insert"
    ),
    *_rules("several deletes of a key do no more than one", "hoodie.combine.before.delete"),
    *_rules(
        "a table has one row of each key: an insert of a known key updates it",
        "hoodie.merge.allow.duplicate.on.inserts",
    ),
    # Values that ask for a different table, or for other rows.
    *_rules(
        _KEYS,
        "hoodie.datasource.write.keygenerator.class hoodie.datasource.write.keygenerator.type",
        "hoodie.table.keygenerator.class hoodie.table.keygenerator.type",
        allowed=_GENERATORS,
    ),
    *_rules(_KEYS, "hoodie.keygen.* hoodie.streamer.keygen.* hoodie.deltastreamer.keygen.*", allowed=()),
    *_rules(_KEYS, "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled", allowed=_OFF),
    *_rules("an upsert leaves one row for each key of its frame", "hoodie.combine.before.upsert", allowed=_ON),
    *_rules("hoodie.record.merge.mode says how rows are merged", "hoodie.record.merge.strategy.id", allowed=()),
    *_rules(
        "rows are merged as hoodie.record.merge.mode says",
        "hoodie.write.record.merge.custom.implementation.classes hoodie.datasource.write.record.merger.impls",
        allowed=_MERGERS,
    ),
    *_rules("every row has Hudi's five meta columns", "hoodie.populate.meta.fields", allowed=_ON),
    *_rules("partition columns stay in the files", "hoodie.datasource.write.drop.partition.columns", allowed=_OFF),
    *_rules("the partition's file is text", "hoodie.partition.metafile.use.base.format", allowed=_OFF),
    *_rules("instants are in UTC", "hoodie.table.timeline.timezone", allowed=("UTC",)),
    *_rules("base files are parquet", "hoodie.table.base.file.format", allowed=("PARQUET",)),
    *_rules("log files are Hudi's", "hoodie.table.log.file.format", allowed=("HOODIE_LOG",)),
    *_rules("rows have five meta columns", "hoodie.allow.operation.metadata.field", allowed=_OFF),
    *_rules("columns are added and widened by writes, with mergeSchema", "hoodie.schema.on.read.enable", allowed=_OFF),
    *_rules(
        "a column stays in the table: leave it out of reads with `columns`",
        "hoodie.datasource.write.schema.allow.auto.evolution.column.drop",
        allowed=_OFF,
    ),
    *_rules(
        "log files are always merged; hoodie.datasource.query.type=read_optimized leaves them out",
        "hoodie.datasource.merge.type",
        allowed=("payload_combine",),
    ),
    *_rules("one table is read: name its folder as the path", "hoodie.datasource.read.paths", allowed=()),
    *_rules("an incremental read is of the whole table", "hoodie.datasource.read.incr.path.glob", allowed=()),
    *_rules(
        "partition columns are in the files", "hoodie.datasource.read.extract.partition.values.from.path", allowed=_OFF
    ),
)
_EXACT = {rule.key: rule for rule in RULES if not rule.key.endswith("*")}
_FAMILIES = {rule.key[:-1]: rule for rule in RULES if rule.key.endswith("*")}
_logged: set[str] = set()


def rule_of(key: str) -> Rule | None:
    """The rule for a key in lower case: its own, or that of the longest beginning."""
    if key in _EXACT:
        return _EXACT[key]
    starts = [start for start in _FAMILIES if key.startswith(start) and key != start]
    return _FAMILIES[max(starts, key=len)] if starts else None


def check_value(rule: Rule, key: str, value: str) -> None:
    """`InvalidRequest` for a value that asks for a different table, or for other rows."""
    if rule.allowed is None or value.strip().lower() in {each.lower() for each in rule.allowed}:
        return
    way_out = f"use {' or '.join(rule.allowed)}, or remove it" if rule.allowed else "remove it"
    raise InvalidRequest(f"{key}={value!r} is not supported: {rule.why}; {way_out}", option=key)


def merge_mode_of(key: str, payload: str) -> str:
    """The merge mode that a payload class stands for, as Hudi 1.x takes it. Errors: `InvalidRequest`."""
    if payload.strip() not in PAYLOADS:
        raise InvalidRequest(
            f"{key}={payload!r} is not supported: payload classes do not run here, and rows would be merged in "
            f"another way; use {' or '.join(PAYLOADS)}, or hoodie.record.merge.mode",
            option=key,
        )
    return PAYLOADS[payload.strip()]


def named_key_generator(given: Mapping[str, str]) -> str | None:
    """`TIMESTAMP_KEYS` or `CUSTOM_KEYS` if the options name such a key generator."""
    named = {given[key].strip().lower() for key in KEY_GENERATOR_KEYS if key in given}
    kinds = ((TIMESTAMP_KEYS, _TIMESTAMP), (CUSTOM_KEYS, _CUSTOM))
    return next((kind for kind, names in kinds if not named.isdisjoint(map(str.lower, names))), None)


def check_key_generator(values: Mapping[str, str], record_key: str, partition_field: str) -> None:
    """`InvalidRequest` for a key generator that does not fit the fields named by the same options."""
    keys, partitions = (values.get(field, "").split(",") for field in (record_key, partition_field))
    for key in (one for one in KEY_GENERATOR_KEYS if one in values):
        named = values[key].strip().lower()
        problem = ""
        if named in map(str.lower, _NO_PARTITIONS) and any(part.strip() for part in partitions):
            problem = f"and {partition_field} do not go together: remove one"
        elif named in map(str.lower, (*_SIMPLE, *_TIMESTAMP)) and (len(keys) > 1 or len(partitions) > 1):
            other = "complex" if named in map(str.lower, _SIMPLE) else "custom"
            problem = f"is for one field each in {record_key} and {partition_field}: use the {other} one, or remove it"
        elif named in map(str.lower, _COMPLEX) and all(
            len(fields) == 1 and fields[0].strip() for fields in (keys, partitions)
        ):  # its keys would be `field:value`
            problem = (
                f"is for several fields, and {record_key} and {partition_field} name one each: use the simple one, or "
                "remove it"
            )
        elif named in map(str.lower, _CUSTOM) and any(part.strip() and ":" not in part for part in partitions):
            problem = (
                f"needs a kind for each field of {partition_field}={values.get(partition_field)}, as in "
                "region:simple,time:timestamp"
            )
        if problem:
            raise InvalidRequest(f"{key}={values[key]!r} {problem}", option=key)


def log_ignored(without_effect: Mapping[str, str]) -> None:
    """Logs, once in a process, which options have no effect and why."""
    fresh = {key: why for key, why in without_effect.items() if key not in _logged}
    _logged.update(fresh)
    if fresh:
        reasons = "; ".join(f"{key} ({why})" for key, why in sorted(fresh.items()))
        _log.warning("accepted, and without effect here: %s", reasons)
