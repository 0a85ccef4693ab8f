"""Adoption of tables of other engines: whether they may be read and written, and the properties to set for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from lakelatch.engine.options.write import BUCKET_COUNT, BUCKET_ENGINE, HASH_FIELD, INDEX_TYPE
from lakelatch.engine.table.opening import open_table
from lakelatch.engine.table.table import OpenedTable
from lakelatch.errors import InvalidRequest, LakelatchError
from lakelatch.format.bucket_index import bucket_of_file_id, key_hashes, possible_bucket_counts
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.keygen.time_partitions import TimePartitions
from lakelatch.format.merge.slice import merge_slice
from lakelatch.format.record_keys import record_keys, value_texts
from lakelatch.format.slices.table_view import TableView
from lakelatch.storage.contract import Storage
from lakelatch.timegen.instant_time import to_instant
from lakelatch.timeline.instant import INFLIGHT
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.table_config import COMMIT_TIME, CUSTOM_KEYS, EVENT_TIME, TableConfig

TIMEZONE = "hoodie.table.timeline.timezone"
_KEY_GENERATOR, _KEY_GENERATOR_CLASS = "hoodie.table.keygenerator.type", "hoodie.table.keygenerator.class"
_KEY_GENERATORS = (
    "TIMESTAMP",
    "CUSTOM",
    "SIMPLE",
    "COMPLEX",
    "NON_PARTITION",
    "SIMPLE_AVRO",
    "COMPLEX_AVRO",
    "NON_PARTITION_AVRO",
)
_KEY_GENERATOR_CLASSES = ("SimpleKeyGenerator", "ComplexKeyGenerator", "NonpartitionedKeyGenerator")
_SLICES_LOOKED_AT = 24
_SHOWN = 3


@dataclass(frozen=True)
class Adoption:
    """The result of an examination. `refusals` say why the table cannot be written, each with a way out; if there are
    none, `settings` are the properties missing for that. `unreadable` says why it cannot even be read."""

    config: TableConfig
    refusals: tuple[str, ...] = ()
    unreadable: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    bucket_count: int | None = None

    @property
    def may_be_read(self) -> bool:
        return not self.unreadable

    @property
    def may_be_written(self) -> bool:
        """Whether it may be written once `settings` are set; table services are writes as well."""
        return not self.refusals and not self.unreadable


def examine(storage: Storage, now_ms: int, bucket_count: int | None, hash_fields: Sequence[str]) -> Adoption:
    """Examines a table's properties, timeline and file groups, and rows of some of these; changes nothing.

    `now_ms` is the storage's time. `bucket_count` and `hash_fields` are what its writers are known to have set;
    without them the fields are those of the record key, and the count is inferred from the rows.

    Errors: `InvalidRequest` where there is no table, or one that cannot be opened at all; `CorruptTable`.
    """
    table = open_table(storage)
    config = table.config
    try:
        slices = TableView.load(storage, config).slices()
    except LakelatchError as error:
        return Adoption(config, unreadable=error.message)
    refusals = list(_by_properties(config))
    if config.bucket_count is not None and bucket_count not in (None, config.bucket_count):
        refusals.append(f"it has {BUCKET_COUNT}={config.bucket_count}, which cannot change later (--buckets)")
    if config.bucket_count is not None and config.timezone == "UTC":  # adopted before, or made by us
        return Adoption(config, tuple(refusals), bucket_count=config.bucket_count)
    refusals += [*_by_timeline(storage, config, now_ms), *_by_groups(slices)]
    if refusals:
        return Adoption(config, tuple(refusals))
    fields = tuple(hash_fields) or config.hash_fields or config.record_key_fields
    if set(fields) - set(config.record_key_fields):
        shown = ",".join(config.record_key_fields)
        return Adoption(
            config, (f"{HASH_FIELD}={','.join(fields)}: only fields of the record key ({shown}) are hashed",)
        )
    try:
        counts = _counts_of(table, slices, fields)
    except LakelatchError as error:
        return Adoption(config, unreadable=error.message)
    wanted = config.bucket_count or bucket_count
    problem = _problem_of_count(counts, wanted, fields)
    if problem:
        return Adoption(config, (problem,))
    count = wanted or (counts or [0])[0]
    return Adoption(config, settings=_settings(config, count, fields), bucket_count=count)


def _by_properties(config: TableConfig) -> Iterator[str]:
    """Refusals by properties that cannot be set here."""
    raw = config.raw
    indexes = config.metadata_partitions or raw.get("hoodie.table.metadata.partitions.inflight", "")
    if indexes:
        yield (
            f"it has a metadata table ({indexes}), which lakelatch does not keep, so that its readers would miss new "
            "files: let Java write once with hoodie.metadata.enable=false, which removes it, and never again with true"
        )
    if config.merge_mode not in (EVENT_TIME, COMMIT_TIME):
        yield f"hoodie.record.merge.mode={config.merge_mode}: only {EVENT_TIME} and {COMMIT_TIME} are known"
    if not config.record_key_fields:
        yield "it has no hoodie.table.recordkey.fields: rows without a key cannot be upserted"
    if config.ordering_field and "," in config.ordering_field:
        yield f"hoodie.table.ordering.fields={config.ordering_field}: only one ordering field is known"
    kind, class_name = raw.get(_KEY_GENERATOR, ""), raw.get(_KEY_GENERATOR_CLASS, "")
    if kind and kind not in _KEY_GENERATORS:
        yield f"{_KEY_GENERATOR}={kind} makes keys and folders that lakelatch does not: write it with Java alone"
    elif not kind and class_name and class_name.rpartition(".")[2] not in _KEY_GENERATOR_CLASSES:
        yield f"{_KEY_GENERATOR_CLASS}={class_name} makes keys and folders that lakelatch does not"
    elif config.key_generator == CUSTOM_KEYS and config.partition_fields and not config.partition_kinds:
        yield f"hoodie.table.partition.fields={','.join(config.partition_fields)}: {CUSTOM_KEYS} needs a kind for each"
    elif config.time_fields:
        try:
            TimePartitions.of(dict(config.time_options))
        except InvalidRequest as error:
            yield f"{_KEY_GENERATOR}={kind or class_name} makes folders of times: {error.message}"


def _by_timeline(storage: Storage, config: TableConfig, now_ms: int) -> Iterator[str]:
    timeline = Snapshot.load(storage)
    busy = [instant.file_name for instant in timeline.pending if instant.state == INFLIGHT]
    if busy:
        yield (
            f"others are at work ({', '.join(busy[:_SHOWN])}): stop them, or wait; if they died, their engine's next "
            "write rolls them back"
        )
    if config.timezone != "UTC" and timeline.latest_time > to_instant(now_ms):
        yield (
            f"{TIMEZONE}={config.timezone}, and its last time, {timeline.latest_time}, is still to come in UTC "
            f"(now {to_instant(now_ms)}): adopt it after that time"
        )


def _by_groups(slices: Sequence[FileSlice]) -> Iterator[str]:
    strangers = [found for found in slices if bucket_of_file_id(found.file_id) is None]
    if strangers:
        yield (
            f"its rows are not in buckets ({strangers[0].partition or '.'}/{strangers[0].file_id}): it was written "
            "with another index than hoodie.index.type=BUCKET and hoodie.index.bucket.engine=SIMPLE"
        )
        return
    live = Counter((found.partition, bucket_of_file_id(found.file_id)) for found in slices)
    for (partition, bucket), count in sorted(live.items()):
        if count > 1:
            yield (
                f"bucket {bucket} of partition {partition or '.'} has {count} file groups, so that keys may be there "
                "twice: rewrite the partition with insert_overwrite of Java's"
            )
            return


def _counts_of(table: OpenedTable, slices: Sequence[FileSlice], fields: Sequence[str]) -> list[int] | None:
    """The bucket counts that the rows of some slices allow; None if there are no rows."""
    hashes: list[np.ndarray] = []
    buckets: list[int] = []
    step = max(len(slices) // _SLICES_LOOKED_AT, 1)
    for found in slices[::step]:
        rows = merge_slice(table.storage, found, table.full_schema, table.config, {}, list(fields)).rows
        if rows.num_rows:
            hashes.append(key_hashes(_hashed_texts(table, rows, fields)))
            buckets += [bucket_of_file_id(found.file_id) or 0] * rows.num_rows
    return possible_bucket_counts(np.concatenate(hashes), buckets) if hashes else None


def _hashed_texts(table: OpenedTable, rows: pa.Table, fields: Sequence[str]) -> list[pa.Array]:
    """The texts that Java hashes: `field:value` for a key of one field that is stored so, else the values."""
    if table.config.prefixed_keys and tuple(fields) == table.config.record_key_fields:
        return [record_keys(rows, fields, True)]
    return [value_texts(rows, name) for name in fields]


def _problem_of_count(counts: list[int] | None, wanted: int | None, fields: Sequence[str]) -> str:
    """The refusal if the number of buckets is unknown, or not the wanted one; "" otherwise."""
    named = ",".join(fields)
    if counts is None:
        return "" if wanted else "it has no rows to find the number of buckets by: name it (--buckets)"
    if wanted is not None:
        fits = any(wanted == count for count in counts)
        return "" if fits else f"its rows do not lie in {wanted} buckets of {named} (--buckets, --hash-field)"
    if len(counts) == 1:
        return ""
    if not counts:
        return f"its rows do not lie in buckets of {named}: name the fields that are hashed (--hash-field)"
    shown = ", ".join(map(str, counts[:_SHOWN])) + (", ..." if len(counts) > _SHOWN else "")
    return f"its rows would lie as they do with several numbers of buckets ({shown}): name the right one (--buckets)"


def _settings(config: TableConfig, count: int, fields: Sequence[str]) -> dict[str, str]:
    """The missing properties. Hashed fields are named only if they are not those of the key."""
    wanted = {INDEX_TYPE: "BUCKET", BUCKET_ENGINE: "SIMPLE", BUCKET_COUNT: str(count), TIMEZONE: "UTC"}
    if tuple(fields) != config.record_key_fields:
        wanted[HASH_FIELD] = ",".join(fields)
    return {name: value for name, value in wanted.items() if config.raw.get(name) != value}
