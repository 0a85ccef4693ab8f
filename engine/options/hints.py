"""The other options of a Hudi job, so that it can be pasted: which have no effect here, and which values are refused.

An option that is listed here never changes what a write does. It either has no effect, which is said in the log with
the reason, or its value would make another table of it, and is refused. `page()` is the list as docs/options.md has it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from lakelatch.engine.options import cleaning, other_formats
from lakelatch.errors import InvalidRequest
from lakelatch.format.keygen.time_partitions import KNOWN_TIME_OPTIONS
from lakelatch.timeline.table_config import COMMIT_TIME, CUSTOM_KEYS, EVENT_TIME, TIME_OPTIONS, TIMESTAMP_KEYS

_log = logging.getLogger("lakelatch.engine")

OTHER_NAMES = {  # Hudi's, for options that take effect
    **cleaning.OTHER_NAMES,
    "hoodie.cleaner.policy.failed.writes": "hoodie.clean.failed.writes.policy",
    "hoodie.datasource.clustering.async.enable": "hoodie.clustering.async.enabled",
    "hoodie.datasource.clustering.inline.enable": "hoodie.clustering.inline",
    "hoodie.table.partition.fields": "hoodie.datasource.write.partitionpath.field",
    "hoodie.table.recordkey.fields": "hoodie.datasource.write.recordkey.field",
    "hoodie.table.type": "hoodie.datasource.write.table.type",
    **{f"hoodie.deltastreamer.keygen.timebased.{key.removeprefix(TIME_OPTIONS)}": key for key in KNOWN_TIME_OPTIONS},
    "hoodie.write.handle.missing.cols.with.lossless.type.promotion": "hoodie.write.set.null.for.missing.columns",
}

PAYLOAD_KEYS = ("hoodie.datasource.write.payload.class", "hoodie.compaction.payload.class")
_MODELS = "org.apache.hudi.common.model."
PAYLOADS = {
    f"{_MODELS}OverwriteWithLatestAvroPayload": COMMIT_TIME,
    f"{_MODELS}DefaultHoodieRecordPayload": EVENT_TIME,
    f"{_MODELS}EventTimeAvroPayload": EVENT_TIME,
}

_KEYGEN = "org.apache.hudi.keygen."
SIMPLE_KEYS = (f"{_KEYGEN}SimpleKeyGenerator", f"{_KEYGEN}SimpleAvroKeyGenerator", "SIMPLE", "SIMPLE_AVRO")
COMPLEX_KEYS = (f"{_KEYGEN}ComplexKeyGenerator", f"{_KEYGEN}ComplexAvroKeyGenerator", "COMPLEX", "COMPLEX_AVRO")
NO_PARTITIONS = (
    f"{_KEYGEN}NonpartitionedKeyGenerator",
    f"{_KEYGEN}NonpartitionedAvroKeyGenerator",
    "NON_PARTITION",
    "NON_PARTITION_AVRO",
)
_TIMESTAMP_NAMES = (
    f"{_KEYGEN}TimestampBasedKeyGenerator",
    f"{_KEYGEN}TimestampBasedAvroKeyGenerator",
    "TIMESTAMP",
    "TIMESTAMP_AVRO",
)
_CUSTOM_NAMES = (f"{_KEYGEN}CustomKeyGenerator", f"{_KEYGEN}CustomAvroKeyGenerator", "CUSTOM", "CUSTOM_AVRO")
_GENERATORS = (*SIMPLE_KEYS, *COMPLEX_KEYS, *NO_PARTITIONS, *_TIMESTAMP_NAMES, *_CUSTOM_NAMES)
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
    """What becomes of one option, or, if its key ends in `*`, of all that begin so and have no rule of their own.

    `allowed` are the values that mean what is the case anyway; others are refused. None: no value makes a difference.
    """

    key: str
    why: str
    allowed: tuple[str, ...] | None = None


_ARCHIVE = "hoodie.keep.min.commits and hoodie.keep.max.commits say what is archived, as one level file a run"
_CLEAN = "a clean plans one at a time, for all partitions that have changed"
_COMPACT = "each file group that a compaction takes becomes one base file, by one task"
_CLUSTER = "a clustering rewrites each file group as one file of the same bucket: see lakelatch.cluster"
_SYNC = "no catalog is told of the table: register its folder there"
_METRICS = "nothing is measured for Hudi's reporters: see CommitResult and `lakelatch timeline`"
_SIZES = "each task writes one file for each bucket that it meets, and a compaction one base file"
_INDEX = "the bucket index looks nothing up"
_BUCKETS = "a bucket is one file of its partition: the number of buckets decides how large files are"
_TASKS = "Spark decides how many tasks there are, or the parallelism of the operation"
_MEMORY = "of logs that it merges a task holds 128 MiB, and puts what is more into a temporary file"
_VIEWS = "files are listed when they are needed"
_KEYS = "keys and folders are made as these key generators of Hudi's make them"
_COLUMNS = "a frame's columns are always checked against the table's"
_METADATA = "lakelatch keeps no metadata table, and reads none"

RULES: tuple[Rule, ...] = (
    *(Rule(key, _CLEAN) for key in ("hoodie.clean.*", "hoodie.cleaner.*")),
    *(
        Rule(key, _ARCHIVE)
        for key in ("hoodie.archive.*", "hoodie.archivelog.*", "hoodie.keep.*", "hoodie.commits.archival.*")
    ),
    *(Rule(key, _COMPACT) for key in ("hoodie.compact.*", "hoodie.compaction.*", "hoodie.log.compaction.*")),
    *(Rule(key, _COMPACT) for key in ("hoodie.datasource.compaction.*", "hoodie.table.services.*")),
    *(Rule(key, _CLUSTER) for key in ("hoodie.clustering.*", "hoodie.datasource.clustering.*")),
    *(
        Rule(key, _SYNC)
        for key in ("hoodie.datasource.hive_sync.*", "hoodie.datasource.meta.sync.*", "hoodie.datasource.meta_sync.*")
    ),
    *(Rule(key, _SYNC) for key in ("hoodie.meta.sync.*", "hoodie.meta_sync.*", "hoodie.gcp.bigquery.sync.*")),
    Rule("hoodie.metrics.*", _METRICS),
    Rule("hoodie.write.commit.callback.*", "nobody is called back after a commit"),
    *(Rule(key, _BUCKETS) for key in ("hoodie.parquet.max.file.size", "hoodie.parquet.small.file.limit")),
    Rule("hoodie.parquet.bloom.filter.enabled", "it is Hudi's own filter of record keys: a bucket index looks none up"),
    *(Rule(key, _SIZES) for key in ("hoodie.parquet.*", "hoodie.logfile.*", "hoodie.copyonwrite.*")),
    *(Rule(key, _SIZES) for key in ("hoodie.record.size.*", "hoodie.hfile.*", "hoodie.orc.*")),
    *(Rule(key, _INDEX) for key in ("hoodie.bloom.*", "hoodie.simple.index.*", "hoodie.global.simple.index.*")),
    *(Rule(key, _INDEX) for key in ("hoodie.index.bloom.*", "hoodie.record.index.*", "hoodie.bucket.index.query.*")),
    *(Rule(key, _TASKS) for key in ("hoodie.rollback.parallelism", "hoodie.finalize.write.parallelism")),
    *(
        Rule(key, _TASKS)
        for key in ("hoodie.markers.delete.parallelism", "hoodie.bulkinsert.user.defined.*", "hoodie.write.executor.*")
    ),
    Rule(
        "hoodie.bulkinsert.sort.mode",
        "rows are sorted within each base file, by record key or the sort columns, and a key's hash decides its file",
    ),
    Rule("hoodie.datasource.write.row.writer.enable", "rows are written by one way only"),
    *(Rule(key, _MEMORY) for key in ("hoodie.memory.*", "hoodie.common.spillable.*", "hoodie.common.diskmap.*")),
    *(Rule(key, _VIEWS) for key in ("hoodie.filesystem.*", "hoodie.consistency.check.*", "hoodie.file.index.*")),
    *(Rule(key, _VIEWS) for key in ("hoodie.datasource.read.file.index.*", "hoodie.enable.data.skipping")),
    *(
        Rule(key, "hoodie.write.markers.type decides whether there is a marker server")
        for key in ("hoodie.embed.timeline.server", "hoodie.embed.timeline.server.*", "hoodie.markers.*")
    ),
    Rule("hoodie.rollback.using.markers", "every rollback is by markers"),
    Rule("hoodie.metadata.*", _METADATA),
    Rule(
        "hoodie.fail.writes.on.inline.table.service.exception",
        "a commit that is there is never reported as failed: `CommitResult.services` names the service that failed",
    ),
    *(Rule(key, _COLUMNS) for key in ("hoodie.avro.schema.*", "hoodie.datasource.write.schema.*")),
    Rule("hoodie.datasource.write.streaming.*", "a batch that fails is an error, and is tried again as the query is"),
    *(Rule(key, "it is for Hudi's own ingestion tool") for key in ("hoodie.streamer.*", "hoodie.deltastreamer.*")),
    Rule("hoodie.sql.*", "there is no SQL that changes a table"),
    Rule("hoodie.spark.sql.*", "there is no SQL that changes a table"),
    Rule("hoodie.datasource.overwrite.mode", "it is for Hudi's INSERT OVERWRITE; the operation says what is replaced"),
    Rule("hoodie.datasource.write.table.name", "the table is called by hoodie.table.name"),
    Rule("hoodie.datasource.write.commitmeta.key.prefix", "options are not copied into commits"),
    Rule("hoodie.write.auto.upgrade", "a table is never upgraded by a write"),
    Rule("hoodie.combine.before.insert", "a table has one row of each key, also of keys that come twice in an insert"),
    Rule("hoodie.combine.before.delete", "several deletes of a key do no more than one"),
    Rule(
        "hoodie.merge.allow.duplicate.on.inserts",
        "a table has one row of each key: an insert of a known key updates it",
    ),
    # Values that would make another table of it, or give other rows.
    *(Rule(key, _KEYS, _GENERATORS) for key in KEY_GENERATOR_KEYS),
    *(Rule(key, _KEYS, ()) for key in ("hoodie.keygen.*", "hoodie.streamer.keygen.*", "hoodie.deltastreamer.keygen.*")),
    Rule("hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled", _KEYS, _OFF),
    Rule("hoodie.combine.before.upsert", "an upsert writes one row for each key of its frame", _ON),
    Rule("hoodie.record.merge.strategy.id", "hoodie.record.merge.mode says how rows are merged", ()),
    *(
        Rule(key, "rows are merged as hoodie.record.merge.mode says", _MERGERS)
        for key in (
            "hoodie.write.record.merge.custom.implementation.classes",
            "hoodie.datasource.write.record.merger.impls",
        )
    ),
    Rule("hoodie.populate.meta.fields", "every row has Hudi's five meta columns", _ON),
    Rule("hoodie.datasource.write.drop.partition.columns", "partition columns stay in the files", _OFF),
    Rule("hoodie.partition.metafile.use.base.format", "the partition's file is text", _OFF),
    Rule("hoodie.table.timeline.timezone", "instants are in UTC", ("UTC",)),
    Rule("hoodie.table.base.file.format", "base files are parquet", ("PARQUET",)),
    Rule("hoodie.table.log.file.format", "log files are Hudi's", ("HOODIE_LOG",)),
    Rule("hoodie.allow.operation.metadata.field", "rows have five meta columns", _OFF),
    Rule("hoodie.schema.on.read.enable", "columns are added and widened by writes, with mergeSchema", _OFF),
    Rule(
        "hoodie.datasource.write.schema.allow.auto.evolution.column.drop",
        "a column stays in the table: leave it out of reads with `columns`",
        _OFF,
    ),
    Rule(
        "hoodie.datasource.merge.type",
        "log files are always merged; hoodie.datasource.query.type=read_optimized leaves them out",
        ("payload_combine",),
    ),
    Rule("hoodie.datasource.read.paths", "one table is read: name its folder as the path", ()),
    Rule("hoodie.datasource.read.incr.path.glob", "an incremental read is of the whole table", ()),
    Rule("hoodie.datasource.read.extract.partition.values.from.path", "partition columns are in the files", _OFF),
)
_EXACT = {rule.key: rule for rule in RULES if not rule.key.endswith("*")}
_FAMILIES = {rule.key[:-1]: rule for rule in RULES if rule.key.endswith("*")}
_told: set[str] = set()


def rule_of(key: str) -> Rule | None:
    """The rule for a key in lower case: its own, or that of the longest beginning."""
    if key in _EXACT:
        return _EXACT[key]
    starts = [start for start in _FAMILIES if key.startswith(start) and key != start]
    return _FAMILIES[max(starts, key=len)] if starts else None


def check_value(rule: Rule, key: str, value: str) -> None:
    """`InvalidRequest` for a value that would make another table of it, or give other rows."""
    if rule.allowed is None or value.strip().lower() in {each.lower() for each in rule.allowed}:
        return
    way_out = f"use {' or '.join(rule.allowed)}, or remove it" if rule.allowed else "remove it"
    raise InvalidRequest(f"{key}={value!r} is not supported: {rule.why}; {way_out}", option=key)


def merge_mode_of(key: str, payload: str) -> str:
    """The merge mode that a payload class stands for, as Hudi 1.x takes it. Errors: `InvalidRequest`."""
    if payload.strip() not in PAYLOADS:
        raise InvalidRequest(
            f"{key}={payload!r} is not supported: no payload class is carried out here, and rows would be merged in "
            f"another way; use {' or '.join(PAYLOADS)}, or hoodie.record.merge.mode",
            option=key,
        )
    return PAYLOADS[payload.strip()]


def named_key_generator(given: Mapping[str, str]) -> str | None:
    """`TIMESTAMP_KEYS` or `CUSTOM_KEYS` if the options name such a key generator."""
    named = {given[key].strip().lower() for key in KEY_GENERATOR_KEYS if key in given}
    kinds = ((TIMESTAMP_KEYS, _TIMESTAMP_NAMES), (CUSTOM_KEYS, _CUSTOM_NAMES))
    return next((kind for kind, names in kinds if not named.isdisjoint(map(str.lower, names))), None)


def check_key_generator(values: Mapping[str, str], record_key: str, partition_field: str) -> None:
    """`InvalidRequest` for a key generator that does not go with the fields which the same options name."""
    keys, partitions = (values.get(field, "").split(",") for field in (record_key, partition_field))
    for key in (one for one in KEY_GENERATOR_KEYS if one in values):
        named = values[key].strip().lower()
        problem = ""
        if named in map(str.lower, NO_PARTITIONS) and any(part.strip() for part in partitions):
            problem = f"and {partition_field} do not go together: remove one"
        elif named in map(str.lower, (*SIMPLE_KEYS, *_TIMESTAMP_NAMES)) and (len(keys) > 1 or len(partitions) > 1):
            other = "complex" if named in map(str.lower, SIMPLE_KEYS) else "custom"
            problem = f"is for one field each in {record_key} and {partition_field}: use the {other} one, or remove it"
        elif named in map(str.lower, COMPLEX_KEYS) and all(
            len(fields) == 1 and fields[0].strip() for fields in (keys, partitions)
        ):  # its keys would be `field:value`
            problem = (
                f"is for several fields, and {record_key} and {partition_field} name one each: use the simple one, or "
                "remove it"
            )
        elif named in map(str.lower, _CUSTOM_NAMES) and any(part.strip() and ":" not in part for part in partitions):
            problem = (
                f"needs a kind for each field of {partition_field}={values.get(partition_field)}, as in "
                "region:simple,time:timestamp"
            )
        if problem:
            raise InvalidRequest(f"{key}={values[key]!r} {problem}", option=key)


def tell(without_effect: Mapping[str, str]) -> None:
    """Says in the log, once in a process, which options have no effect and why."""
    fresh = {key: why for key, why in without_effect.items() if key not in _told}
    _told.update(fresh)
    if fresh:
        reasons = "; ".join(f"{key} ({why})" for key, why in sorted(fresh.items()))
        _log.warning("accepted, and without effect here: %s", reasons)


def page() -> str:
    """The rules as tables for docs/options.md."""
    taken = [f"| `{name}` | as `{other}` |" for name, other in sorted(OTHER_NAMES.items())]
    for key in PAYLOAD_KEYS:
        modes = [f"`{payload.rpartition('.')[2]}` is `{mode}`" for payload, mode in PAYLOADS.items()]
        taken.append(f"| `{key}` | {', '.join(modes)}, as `hoodie.record.merge.mode`; others are refused |")
    rules = sorted({rule.key: rule for rule in RULES}.values(), key=lambda rule: rule.key)
    plain = [f"| `{rule.key}` | {rule.why} |" for rule in rules if rule.allowed is None]
    strict = [f"| `{rule.key}` | {_shown(rule)} | {rule.why} |" for rule in rules if rule.allowed is not None]
    return "\n".join(
        [
            *("| another name | taken |", "| --- | --- |", *taken, ""),
            *("| accepted, without effect | why |", "| --- | --- |", *plain, ""),
            *("| refused but for | these values | why |", "| --- | --- | --- |", *strict, ""),
            *(*other_formats.rows(), ""),
        ]
    )


def _shown(rule: Rule) -> str:
    values = dict.fromkeys(value.removeprefix(_KEYGEN).removeprefix(_MODELS) for value in rule.allowed or ())
    return ", ".join(f"`{value}`" for value in values) or "none"
