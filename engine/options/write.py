"""Write and read options: Hudi's keys, checked once, unknown ones refused with the nearest known name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from lakelatch.engine.options.batch import BATCH_APPLICATION, BATCH_NUMBER, Batch
from lakelatch.engine.options.hints import (
    KEY_GENERATOR_KEYS,
    OTHER_NAMES,
    PAYLOAD_KEYS,
    check_key_generator,
    check_value,
    merge_mode_of,
    named_key_generator,
    rule_of,
    tell,
)
from lakelatch.engine.options.known import SERVICE_KEYS
from lakelatch.engine.options.other_formats import elsewhere
from lakelatch.errors import InvalidRequest
from lakelatch.format.base_file_options import BASE_FILE_KEYS, BaseFileOptions, is_bloom_key
from lakelatch.format.keygen.time_partitions import KNOWN_TIME_OPTIONS
from lakelatch.locks.options import KNOWN_LOCK_KEYS, is_provider_key
from lakelatch.option_values import flag, one_of, text_of, whole_number
from lakelatch.storage.options import KNOWN_STORAGE_KEYS, StorageOptions
from lakelatch.timegen.open import KNOWN_TIME_KEYS
from lakelatch.timeline.actions import (
    BULK_INSERT,
    COMMIT,
    DELETE,
    DELETE_PARTITION,
    DELTA_COMMIT,
    INSERT,
    INSERT_OVERWRITE,
    INSERT_OVERWRITE_TABLE,
    REPLACE_COMMIT,
    REPLACING_OPERATIONS,
    UPSERT,
    WRITE_OPERATIONS,
)
from lakelatch.timeline.column_groups import COLUMN_GROUPS, ColumnGroup, parse_column_groups
from lakelatch.timeline.table_config import (
    CDC_ENABLED,
    CDC_MODE,
    CDC_MODES,
    COMMIT_TIME,
    COPY_ON_WRITE,
    CUSTOM_KEYS,
    DATA_BEFORE_AFTER,
    EVENT_TIME,
    SIMPLE_FIELD,
    TABLE_TYPES,
    TABLE_VERSIONS,
    TIMESTAMP_FIELD,
)
from lakelatch.transactions.base.settings import (
    KNOWN_TRANSACTION_KEYS,
    MODE_OPTION,
    NON_BLOCKING,
    OPTIMISTIC,
    TransactionSettings,
)

RECORD_KEY = "hoodie.datasource.write.recordkey.field"
PARTITION_FIELD = "hoodie.datasource.write.partitionpath.field"
ORDERING_FIELD = "hoodie.datasource.write.precombine.field"
ORDERING_KEYS = ("hoodie.table.ordering.fields", ORDERING_FIELD, "hoodie.table.precombine.field")
OPERATION = "hoodie.datasource.write.operation"
TABLE_NAME = "hoodie.table.name"
DATABASE = "hoodie.database.name"
TABLE_VERSION = "hoodie.write.table.version"
TABLE_TYPE = "hoodie.datasource.write.table.type"
MERGE_MODE = "hoodie.record.merge.mode"
INDEX_TYPE = "hoodie.index.type"
BUCKET_ENGINE = "hoodie.index.bucket.engine"
BUCKET_COUNT = "hoodie.bucket.index.num.buckets"
HASH_FIELD = "hoodie.bucket.index.hash.field"
HIVE_STYLE = "hoodie.datasource.write.hive_style_partitioning"
URL_ENCODE = "hoodie.datasource.write.partitionpath.urlencode"
BLOCK_FORMAT = "hoodie.logfile.data.block.format"
DROP_DUPLICATES = "hoodie.datasource.write.insert.drop.duplicates"
KNOWN_KEYS_POLICY = "hoodie.datasource.insert.dup.policy"
PARTITIONS_TO_DELETE = "hoodie.datasource.write.partitions.to.delete"
KEY_GENERATOR = "hoodie.datasource.write.keygenerator.type"
MERGE_SCHEMA = "mergeSchema"
NUMBERS_TO_TEXT = "lakelatch.write.numbers.to.text"
RECONCILE_SCHEMA = "hoodie.datasource.write.reconcile.schema"
NULL_FOR_MISSING = "hoodie.write.set.null.for.missing.columns"
BLOCK_FORMATS = ("parquet", "avro")
LOAD_SORT_COLUMNS = "hoodie.bulkinsert.user.defined.partitioner.sort.columns"
SMALL_ROWS = "lakelatch.write.small.rows"
METADATA_TABLE = "hoodie.metadata.enable"
QUERY_TYPE = "hoodie.datasource.query.type"
AS_OF = "as.of.instant"
BEGIN_INSTANT = "hoodie.datasource.read.begin.instanttime"
END_INSTANT = "hoodie.datasource.read.end.instanttime"
INCREMENTAL_FORMAT = "hoodie.datasource.query.incremental.format"
COLUMNS, READ_META = "columns", "lakelatch.read.meta.columns"
START_OFFSET = "hoodie.datasource.streaming.startoffset"  # Hudi writes it with a capital O
READ_INDEX, READ_VERIFY = "lakelatch.read.index", "lakelatch.read.verify"
MAX_COMMITS = "lakelatch.read.stream.max.commits"
MAX_FILES = "maxfilespertrigger"  # Spark's own, for sources of files

_PARALLELISM = {
    UPSERT: "hoodie.upsert.shuffle.parallelism",
    INSERT: "hoodie.insert.shuffle.parallelism",
    BULK_INSERT: "hoodie.bulkinsert.shuffle.parallelism",
    DELETE: "hoodie.delete.shuffle.parallelism",
    INSERT_OVERWRITE: "hoodie.insert.shuffle.parallelism",
    INSERT_OVERWRITE_TABLE: "hoodie.insert.shuffle.parallelism",
    DELETE_PARTITION: "hoodie.delete.shuffle.parallelism",
}
DEFAULT_BUCKET_COUNT = 4
UPDATE, DROP, FAIL = "none", "drop", "fail"  # what an insert does with a row whose key is there

_NEAR = 0.8  # a hint at another option is worse than none
_SLIP = 0.96  # so near to a known key that it is a slip, also where all keys that begin so have no effect

SNAPSHOT, READ_OPTIMIZED, INCREMENTAL = "snapshot", "read_optimized", "incremental"
LATEST_STATE, CDC = "latest_state", "cdc"
QUERY_TYPES = (SNAPSHOT, READ_OPTIMIZED, INCREMENTAL)

_WRITE_KEYS = {
    RECORD_KEY,
    PARTITION_FIELD,
    *ORDERING_KEYS,
    OPERATION,
    TABLE_NAME,
    TABLE_TYPE,
    TABLE_VERSION,
    MERGE_MODE,
    INDEX_TYPE,
    BUCKET_ENGINE,
    BUCKET_COUNT,
    HASH_FIELD,
    COLUMN_GROUPS,
    HIVE_STYLE,
    URL_ENCODE,
    *KNOWN_TIME_OPTIONS,
    CDC_ENABLED,
    CDC_MODE,
    BLOCK_FORMAT,
    SMALL_ROWS,
    LOAD_SORT_COLUMNS,
    MERGE_SCHEMA.lower(),
    NUMBERS_TO_TEXT,
    RECONCILE_SCHEMA,
    NULL_FOR_MISSING,
    METADATA_TABLE,
    BATCH_APPLICATION,
    BATCH_NUMBER,
    DROP_DUPLICATES,
    KNOWN_KEYS_POLICY,
    PARTITIONS_TO_DELETE,
    *_PARALLELISM.values(),
    DATABASE,
}
_READ_KEYS = {QUERY_TYPE, AS_OF, BEGIN_INSTANT, END_INSTANT, INCREMENTAL_FORMAT, COLUMNS}
_READ_KEYS |= {READ_INDEX, READ_VERIFY, READ_META, START_OFFSET, MAX_COMMITS, MAX_FILES}
_PATHS = {"path", "hoodie.base.path"}  # the second is asked for by Hudi's lock providers with an implicit place
KNOWN_KEYS = frozenset(
    _WRITE_KEYS
    | _READ_KEYS
    | KNOWN_LOCK_KEYS
    | KNOWN_TIME_KEYS
    | KNOWN_TRANSACTION_KEYS
    | SERVICE_KEYS
    | BASE_FILE_KEYS
    | KNOWN_STORAGE_KEYS
    | _PATHS
)


def normalise(options: Mapping[str, object] | None) -> dict[str, str]:
    """Keys in lower case (as Spark's data source hands them over), values as text; `InvalidRequest` if unknown.

    Write and read options may be mixed, so that one dictionary serves a job that does both. Options of Hudi's that have
    no effect here are left out, and told in the log; a value that would make another table of it is refused.
    """
    values: dict[str, str] = {}
    without_effect: dict[str, str] = {}
    given = {key.lower(): (key, text_of(key, value)) for key, value in (options or {}).items() if value is not None}
    for name, (key, value) in given.items():
        if name in PAYLOAD_KEYS:
            _set(values, given, MERGE_MODE, merge_mode_of(name, value), key)
        elif name in OTHER_NAMES:
            _set(values, given, OTHER_NAMES[name], value, key)
        elif name in KNOWN_KEYS:
            values[name] = value
        elif (rule := rule_of(name)) is not None and not _nearest(name, _SLIP):
            check_value(rule, name, value)
            if named_key_generator({name: value}) is None:
                without_effect[name] = rule.why
        elif is_provider_key(name) or is_bloom_key(name):
            values[name] = value
        else:
            raise InvalidRequest(f"the option {key!r} is not known: {_way_out(name, value)}", option=key)
    generators = {key: given[key][1] for key in KEY_GENERATOR_KEYS if key in given}
    check_key_generator({**values, **generators}, RECORD_KEY, PARTITION_FIELD)
    generator = named_key_generator(generators)
    if generator is not None:
        values[KEY_GENERATOR] = generator
    tell(without_effect)
    return values


def _set(values: dict[str, str], given: Mapping[str, tuple[str, str]], name: str, value: str, key: str) -> None:
    """Sets an option that was given by another name; `InvalidRequest` if it was also given as something else."""
    for other in (values.get(name), given[name][1] if name in given else None):
        if other is not None and other.strip().lower() != value.strip().lower():
            raise InvalidRequest(
                f"{key} means {name}={value}, and {name}={other} was given as well: remove one", option=key
            )
    values[name] = value


def _way_out(name: str, value: str) -> str:
    near = _nearest(name, _NEAR)
    return elsewhere(name, value) or (f"did you mean {near!r}? Correct it, or remove it" if near else "remove it")


@lru_cache(200)  # a job gives the same keys with each write
def _nearest(name: str, cutoff: float) -> str | None:
    """A known key that the user may have meant, by what is behind the prefix that nearly all of them share."""
    by_rest = {known.partition(".")[2] or known: known for known in sorted(KNOWN_KEYS)}
    near = difflib.get_close_matches(name.partition(".")[2] or name, by_rest, n=1, cutoff=cutoff)
    return by_rest[near[0]] if near else None


@dataclass(frozen=True)
class ManagerOptions:
    """What a transaction manager is opened with.

    `scope` is handed to the lock provider and the time generator, which may come from other packages and read keys of
    their own; it may hold secrets and is never shown.
    """

    transactions: TransactionSettings
    storage: StorageOptions = field(default_factory=StorageOptions)
    scope: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def from_options(cls, values: Mapping[str, str]) -> ManagerOptions:
        """Errors: `InvalidRequest`, naming the option, its value and what is possible."""
        return cls(TransactionSettings.from_options(values), StorageOptions.from_options(values), values)


@dataclass(frozen=True)
class WriteOptions:
    """What a write asks for. Fields that are fixed when a table is made are None where the caller left them out.

    `small_rows` is None where the caller said nothing of it, and `batch` where the write is no batch. `called` is what
    a change is called that has no operation of Hudi's.
    """

    operation: str
    known_keys: str
    table_type: str | None
    table_name: str | None
    database: str
    record_key_fields: tuple[str, ...] | None
    partition_fields: tuple[str, ...] | None
    partition_kinds: tuple[str, ...]
    key_generator: str | None
    time_options: tuple[tuple[str, str], ...]
    ordering_field: str | None
    merge_mode: str | None
    bucket_count: int | None
    hash_fields: tuple[str, ...] | None
    column_groups: tuple[ColumnGroup, ...] | None
    hive_style: bool | None
    url_encode: bool | None
    cdc_enabled: bool | None
    cdc_mode: str | None
    table_version: int | None
    block_format: str | None
    parallelism: int | None
    small_rows: int | None
    merge_schema: bool
    numbers_to_text: bool
    null_for_missing: bool
    batch: Batch | None
    partitions_to_delete: tuple[str, ...] | None
    sort_columns: tuple[str, ...]
    base_files: BaseFileOptions
    manager: ManagerOptions
    called: str = ""

    def action_on(self, table_type: str) -> str:
        """The timeline action of this write to a table of that type."""
        if self.operation in REPLACING_OPERATIONS:
            return REPLACE_COMMIT
        return COMMIT if table_type == COPY_ON_WRITE else DELTA_COMMIT

    @property
    def non_blocking(self) -> bool:
        """Whether this write goes under non-blocking concurrency control."""
        return self.manager.transactions.mode == NON_BLOCKING

    @classmethod
    def parse(cls, options: Mapping[str, object] | None) -> WriteOptions:
        """Errors: `InvalidRequest`, naming the option, its value and what is possible."""
        return cls.from_options(normalise(options))

    @classmethod
    def from_options(cls, values: Mapping[str, str]) -> WriteOptions:
        """As `parse`, of what `normalise` has made of them."""
        operation, known_keys = _operation(values)
        for key, allowed in ((INDEX_TYPE, "BUCKET"), (BUCKET_ENGINE, "SIMPLE")):
            one_of(values, key, (allowed,), allowed)
        if flag(values, METADATA_TABLE):
            raise InvalidRequest(
                f"{METADATA_TABLE}=true: lakelatch keeps no metadata table, and readers that trusted one would miss "
                "files: set it to false, in Java readers of this table as well"
            )
        merge_modes = (EVENT_TIME, COMMIT_TIME)
        parallelism = _PARALLELISM[operation]
        reconcile = flag(values, RECONCILE_SCHEMA)
        partition_fields, partition_kinds = _partition_fields(values)
        return cls(
            operation=operation,
            known_keys=known_keys,
            table_type=one_of(values, TABLE_TYPE, TABLE_TYPES, TABLE_TYPES[0]) if TABLE_TYPE in values else None,
            table_name=values.get(TABLE_NAME),
            database=values.get(DATABASE, "default"),
            record_key_fields=_fields(values, RECORD_KEY),
            partition_fields=partition_fields,
            partition_kinds=partition_kinds,
            key_generator=CUSTOM_KEYS if partition_kinds else values.get(KEY_GENERATOR),
            time_options=tuple((key, values[key]) for key in sorted(KNOWN_TIME_OPTIONS) if key in values),
            ordering_field=_ordering_field(values),
            merge_mode=one_of(values, MERGE_MODE, merge_modes, COMMIT_TIME) if MERGE_MODE in values else None,
            bucket_count=whole_number(values, BUCKET_COUNT, 0, 1, 99_999_999) if BUCKET_COUNT in values else None,
            hash_fields=_fields(values, HASH_FIELD),
            column_groups=parse_column_groups(values[COLUMN_GROUPS]) if COLUMN_GROUPS in values else None,
            hive_style=flag(values, HIVE_STYLE) if HIVE_STYLE in values else None,
            url_encode=flag(values, URL_ENCODE) if URL_ENCODE in values else None,
            cdc_enabled=flag(values, CDC_ENABLED) if CDC_ENABLED in values else None,
            cdc_mode=one_of(values, CDC_MODE, CDC_MODES, DATA_BEFORE_AFTER) if CDC_MODE in values else None,
            table_version=_table_version(values),
            block_format=one_of(values, BLOCK_FORMAT, BLOCK_FORMATS, "parquet") if BLOCK_FORMAT in values else None,
            parallelism=whole_number(values, parallelism, 0, 1, 1_000_000) if parallelism in values else None,
            small_rows=whole_number(values, SMALL_ROWS, 0, 0, 10_000_000) if SMALL_ROWS in values else None,
            merge_schema=flag(values, MERGE_SCHEMA.lower()) or reconcile,
            numbers_to_text=flag(values, NUMBERS_TO_TEXT),
            null_for_missing=flag(values, NULL_FOR_MISSING) or reconcile,
            batch=Batch.from_options(values),
            partitions_to_delete=_fields(values, PARTITIONS_TO_DELETE),
            sort_columns=_fields(values, LOAD_SORT_COLUMNS) or (),
            base_files=BaseFileOptions.from_options(values),
            manager=ManagerOptions.from_options(values),
        )


def _operation(values: Mapping[str, str]) -> tuple[str, str]:
    """What a write does, and what it does with rows whose keys are there: as in Hudi, a word on those makes an upsert
    an insert, and says nothing to what is neither."""
    operation = one_of(values, OPERATION, WRITE_OPERATIONS, UPSERT)
    policy = one_of(values, KNOWN_KEYS_POLICY, (UPDATE, DROP, FAIL), UPDATE)
    if flag(values, DROP_DUPLICATES):
        if policy == FAIL or (policy == UPDATE and KNOWN_KEYS_POLICY in values):
            raise InvalidRequest(
                f"{DROP_DUPLICATES}=true and {KNOWN_KEYS_POLICY}={policy}: remove one", option=DROP_DUPLICATES
            )
        policy = DROP
        operation = INSERT if operation == UPSERT else operation
    if operation not in (INSERT, BULK_INSERT):
        policy = UPDATE
    if policy != UPDATE and values.get(MODE_OPTION, "").upper() == NON_BLOCKING:
        raise InvalidRequest(
            f"{MODE_OPTION}={NON_BLOCKING}: nobody would see that another writer inserts the same key, which "
            f"{KNOWN_KEYS_POLICY}={policy} is to find. Use {OPTIMISTIC}, or leave the policy out",
            option=MODE_OPTION,
        )
    return operation, policy


def refuse_known_keys(options: WriteOptions, what: str) -> None:
    """`InvalidRequest` where nobody looks which keys are in the table."""
    if options.known_keys != UPDATE:
        raise InvalidRequest(
            f"{KNOWN_KEYS_POLICY}={options.known_keys} is for lakelatch.write(frame, path, options), and {what} does "
            "not look which keys are there: write by that, or leave the option out",
            option=KNOWN_KEYS_POLICY,
        )


def _table_version(values: Mapping[str, str]) -> int | None:
    known = tuple(map(str, TABLE_VERSIONS))
    return int(one_of(values, TABLE_VERSION, known, known[-1])) if TABLE_VERSION in values else None


def _ordering_field(values: Mapping[str, str]) -> str | None:
    found = {values[key].strip() for key in ORDERING_KEYS if values.get(key, "").strip()}
    if len(found) > 1 or any("," in field for field in found):
        raise InvalidRequest(f"one ordering field is supported, and {', '.join(sorted(found))} were given")
    return next(iter(found), None)


def _fields(values: Mapping[str, str], key: str) -> tuple[str, ...] | None:
    if key not in values:
        return None
    return tuple(name.strip() for name in values[key].split(",") if name.strip())


def _partition_fields(values: Mapping[str, str]) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """The partition fields, and for a custom key generator the kind of each (`field:kind`)."""
    named = _fields(values, PARTITION_FIELD)
    pairs = [name.partition(":") for name in named or ()]
    kinds = tuple(kind.strip().upper() for _, _, kind in pairs)
    if any(kinds) and not {SIMPLE_FIELD, TIMESTAMP_FIELD}.issuperset(kinds):
        raise InvalidRequest(
            f"{PARTITION_FIELD}={values[PARTITION_FIELD]}: each field has a kind, simple or timestamp, or none has",
            option=PARTITION_FIELD,
        )
    return None if named is None else tuple(name.strip() for name, _, _ in pairs), kinds if any(kinds) else ()
