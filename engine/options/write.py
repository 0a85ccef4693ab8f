"""The options of a write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lakelatch.engine.options.batch import BATCH_OPTIONS, Batch
from lakelatch.engine.options.manager import ManagerOptions
from lakelatch.errors import InvalidRequest
from lakelatch.format.base_file_options import BaseFileOptions
from lakelatch.format.keygen.time_partitions import KNOWN_TIME_OPTIONS
from lakelatch.option_values import Option, ParsedOptions, as_given, flag, names, one_of, option, whole
from lakelatch.timeline.actions import (
    BULK_INSERT,
    COMMIT,
    DELETE,
    DELTA_COMMIT,
    INSERT,
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
    EVENT_TIME,
    SIMPLE_FIELD,
    TABLE_TYPES,
    TABLE_VERSIONS,
    TIME_OPTIONS,
    TIMESTAMP_FIELD,
    TableConfig,
)
from lakelatch.transactions.base.settings import MODE_OPTION, NON_BLOCKING, OPTIMISTIC

RECORD_KEY = "hoodie.datasource.write.recordkey.field"
PARTITION_FIELD = "hoodie.datasource.write.partitionpath.field"
ORDERING_FIELD = "hoodie.datasource.write.precombine.field"
OPERATION = "hoodie.datasource.write.operation"
TABLE_NAME = "hoodie.table.name"
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
KNOWN_KEYS_POLICY = "hoodie.datasource.insert.dup.policy"
PARTITIONS_TO_DELETE = "hoodie.datasource.write.partitions.to.delete"
STATIC_PARTITION = "hoodie.static.overwrite.partition.paths"
KEY_GENERATOR = "hoodie.datasource.write.keygenerator.type"
MERGE_SCHEMA = "mergeSchema"
NUMBERS_TO_TEXT = "lakelatch.write.numbers.to.text"
NULL_FOR_MISSING = "hoodie.write.set.null.for.missing.columns"
LOAD_SORT_COLUMNS = "hoodie.bulkinsert.user.defined.partitioner.sort.columns"
SMALL_ROWS = "lakelatch.write.small.rows"
SHUFFLE = "lakelatch.write.shuffle"

DEFAULT_BUCKET_COUNT = 4
UPDATE, DROP, FAIL = "none", "drop", "fail"  # what an insert does with a row whose key exists


def _no_metadata_table(key: str, text: str) -> None:
    if flag(key, text):
        raise InvalidRequest(
            f"{key}=true: lakelatch keeps no metadata table, and readers that trusted one would miss files: set it to "
            "false, in Java readers of this table as well"
        )


def _version(key: str, text: str) -> int:
    return int(one_of(*map(str, TABLE_VERSIONS))(key, text))


def _groups(key: str, text: str) -> tuple[ColumnGroup, ...]:
    return parse_column_groups(text)


_OLD_TIME_OPTIONS = "hoodie.deltastreamer.keygen.timebased."
_TIMES = [Option(key, as_given, None, (key.replace(TIME_OPTIONS, _OLD_TIME_OPTIONS),)) for key in KNOWN_TIME_OPTIONS]
_ORDERING_KEYS = ("hoodie.table.ordering.fields", ORDERING_FIELD, "hoodie.table.precombine.field")
_ORDERING = [Option(key, as_given, "") for key in _ORDERING_KEYS]
_DROP_DUPLICATES = Option("hoodie.datasource.write.insert.drop.duplicates", flag, False)
_RECONCILE_SCHEMA = Option("hoodie.datasource.write.reconcile.schema", flag, False)
_TASKS: dict[str, Option[int | None]] = {  # of an insert, for operations that have none of their own
    operation: Option(f"hoodie.{operation.replace('_', '')}.shuffle.parallelism", whole(1, 1_000_000), None)
    for operation in (UPSERT, INSERT, BULK_INSERT, DELETE)
}


@dataclass(frozen=True)
class WriteOptions(ParsedOptions):
    """The options of a write. Fields that are fixed when a table is made are None where the caller left them out.

    `small_rows` and `shuffle` are None where the caller left them out, and `batch` where the write is no batch.
    `called` names a change that is no operation of Hudi. An operation that the caller does not name
    (`names_operation`) is an upsert.
    """

    also = (
        Option(INDEX_TYPE, one_of("BUCKET"), "BUCKET"),
        Option(BUCKET_ENGINE, one_of("SIMPLE"), "SIMPLE"),
        Option("hoodie.metadata.enable", _no_metadata_table, None),
        _DROP_DUPLICATES,
        _RECONCILE_SCHEMA,
        *_ORDERING,
        *(Option(tasks.key, as_given, None) for tasks in _TASKS.values()),  # only the operation's own one counts
        *_TIMES,
        *BATCH_OPTIONS,
    )
    operation: str = option(OPERATION, one_of(*WRITE_OPERATIONS), UPSERT)
    known_keys: str = option(KNOWN_KEYS_POLICY, one_of(UPDATE, DROP, FAIL), UPDATE)
    table_type: str | None = option(TABLE_TYPE, one_of(*TABLE_TYPES), None, "hoodie.table.type")
    table_name: str | None = option(TABLE_NAME, as_given)
    database: str = option("hoodie.database.name", as_given, "default")
    record_key_fields: tuple[str, ...] | None = option(RECORD_KEY, names, None, "hoodie.table.recordkey.fields")
    partition_fields: tuple[str, ...] | None = option(PARTITION_FIELD, names, None, "hoodie.table.partition.fields")
    partition_kinds: tuple[str, ...] = ()
    key_generator: str | None = None
    time_options: tuple[tuple[str, str], ...] = ()
    ordering_field: str | None = None
    merge_mode: str | None = option(MERGE_MODE, one_of(EVENT_TIME, COMMIT_TIME))
    bucket_count: int | None = option(BUCKET_COUNT, whole(1, 99_999_999))
    hash_fields: tuple[str, ...] | None = option(HASH_FIELD, names)
    column_groups: tuple[ColumnGroup, ...] | None = option(COLUMN_GROUPS, _groups)
    hive_style: bool | None = option(HIVE_STYLE, flag)
    url_encode: bool | None = option(URL_ENCODE, flag)
    cdc_enabled: bool | None = option(CDC_ENABLED, flag)
    cdc_mode: str | None = option(CDC_MODE, one_of(*CDC_MODES))
    table_version: int | None = option(TABLE_VERSION, _version)
    block_format: str | None = option(BLOCK_FORMAT, one_of("parquet", "avro"))
    parallelism: int | None = None
    small_rows: int | None = option(SMALL_ROWS, whole(0, 10_000_000))
    shuffle: bool | None = option(SHUFFLE, flag)
    merge_schema: bool = option(MERGE_SCHEMA.lower(), flag, False)
    numbers_to_text: bool = option(NUMBERS_TO_TEXT, flag, False)
    null_for_missing: bool = option(
        NULL_FOR_MISSING, flag, False, "hoodie.write.handle.missing.cols.with.lossless.type.promotion"
    )
    batch: Batch | None = None
    partitions_to_delete: tuple[str, ...] | None = option(PARTITIONS_TO_DELETE, names)
    static_partition: str | None = option(STATIC_PARTITION, as_given)
    sort_columns: tuple[str, ...] = option(LOAD_SORT_COLUMNS, names, ())
    base_files: BaseFileOptions = field(default_factory=BaseFileOptions)
    manager: ManagerOptions = field(default_factory=ManagerOptions)
    called: str = ""
    names_operation: bool = True

    def on(self, config: TableConfig) -> WriteOptions:
        """The options for a table: without a record key what is called no operation is an insert, as in Hudi.

        Errors: `InvalidRequest` for what finds rows by their keys, in a table without one.
        """
        if not config.appends_only:
            return self
        wrong = ""
        if self.known_keys == DROP:
            wrong = f"{KNOWN_KEYS_POLICY}={self.known_keys}"
        elif self.operation == DELETE or (self.operation == UPSERT and self.names_operation):
            wrong = f"{OPERATION}={self.operation}"
        if wrong:
            raise without_key(config, wrong)
        return replace(self, operation=INSERT if self.operation == UPSERT else self.operation, known_keys=UPDATE)

    def action_on(self, table_type: str) -> str:
        """The timeline action of this write to a table of that type."""
        if self.operation in REPLACING_OPERATIONS:
            return REPLACE_COMMIT
        return COMMIT if table_type == COPY_ON_WRITE else DELTA_COMMIT

    @property
    def non_blocking(self) -> bool:
        """Whether this write is under non-blocking concurrency control."""
        return self.manager.transactions.mode == NON_BLOCKING

    def completed(self, values: Mapping[str, str]) -> WriteOptions:
        operation, known_keys = _operation(self, values)
        pairs = [name.partition(":") for name in self.partition_fields or ()]
        kinds = tuple(kind.strip().upper() for _, _, kind in pairs)
        if any(kinds) and not {SIMPLE_FIELD, TIMESTAMP_FIELD}.issuperset(kinds):
            raise InvalidRequest(
                f"{PARTITION_FIELD}={values[PARTITION_FIELD]}: each field has a kind, simple or timestamp, or none has",
                option=PARTITION_FIELD,
            )
        ordering = {field for one in _ORDERING if (field := one.of(values).strip())}
        if len(ordering) > 1 or any("," in field for field in ordering):
            raise InvalidRequest(f"one ordering field is supported, and {', '.join(sorted(ordering))} were given")
        reconcile = _RECONCILE_SCHEMA.of(values)
        return replace(
            self,
            operation=operation,
            names_operation=OPERATION in values,
            known_keys=known_keys,
            partition_fields=None if self.partition_fields is None else tuple(name.strip() for name, _, _ in pairs),
            partition_kinds=kinds if any(kinds) else (),
            key_generator=CUSTOM_KEYS if any(kinds) else values.get(KEY_GENERATOR),
            time_options=tuple((key, values[key]) for key in sorted(KNOWN_TIME_OPTIONS) if key in values),
            ordering_field=next(iter(ordering), None),
            parallelism=_TASKS.get(operation, _TASKS[INSERT]).of(values),
            merge_schema=self.merge_schema or reconcile,
            null_for_missing=self.null_for_missing or reconcile,
            batch=Batch.from_options(values),
        )


def _operation(said: WriteOptions, values: Mapping[str, str]) -> tuple[str, str]:
    """The operation of a write, and its policy for rows whose keys exist.

    As in Hudi, dropping duplicates turns an upsert into an insert; operations that are no inserts ignore the policy.
    """
    operation, policy = said.operation, said.known_keys
    if _DROP_DUPLICATES.of(values):
        if policy == FAIL or (policy == UPDATE and KNOWN_KEYS_POLICY in values):
            raise InvalidRequest(
                f"{_DROP_DUPLICATES.key}=true and {KNOWN_KEYS_POLICY}={policy}: remove one", option=_DROP_DUPLICATES.key
            )
        policy = DROP
        operation = INSERT if operation == UPSERT else operation
    if operation not in (INSERT, BULK_INSERT):
        policy = UPDATE
    if policy != UPDATE and said.non_blocking:
        raise InvalidRequest(
            f"{MODE_OPTION}={NON_BLOCKING}: it would go unseen that another writer inserts the same key, which "
            f"{KNOWN_KEYS_POLICY}={policy} is to find. Use {OPTIMISTIC}, or leave the policy out",
            option=MODE_OPTION,
        )
    return operation, policy


def ensure_has_key(config: TableConfig, what: str) -> None:
    """`InvalidRequest` for what finds rows by their keys, in a table without one."""
    if config.appends_only:
        raise without_key(config, what)


def without_key(config: TableConfig, what: str) -> InvalidRequest:
    """The error for what finds rows by their keys, in a table without one."""
    return InvalidRequest(
        f"{what} finds rows by their keys, and the table {config.name!r} has no record key: its rows are added by "
        f"insert or bulk_insert, and go by insert_overwrite or with their partition. To change single rows, make a "
        f"table with {RECORD_KEY}",
        option=RECORD_KEY,
    )


def refuse_known_keys(options: WriteOptions, what: str) -> None:
    """`InvalidRequest` for a policy for known keys, where a write does not look keys up."""
    if options.known_keys != UPDATE:
        raise InvalidRequest(
            f"{KNOWN_KEYS_POLICY}={options.known_keys} is for lakelatch.write(frame, path, options), and {what} does "
            "not look keys up: use that, or leave the option out",
            option=KNOWN_KEYS_POLICY,
        )
