"""A table as one call sees it, and the properties on which its writers must agree."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa

from lakelatch.engine.options.write import (
    BUCKET_COUNT,
    HASH_FIELD,
    HIVE_STYLE,
    KEY_GENERATOR,
    MERGE_MODE,
    ORDERING_FIELD,
    PARTITION_FIELD,
    RECORD_KEY,
    TABLE_NAME,
    TABLE_TYPE,
    TABLE_VERSION,
    URL_ENCODE,
    WriteOptions,
)
from lakelatch.errors import InvalidRequest
from lakelatch.format.avro import RECORD_KEY_COLUMN, arrow_to_avro, with_meta_columns
from lakelatch.format.base_file_options import BaseFileOptions
from lakelatch.format.keygen.time_partitions import TimePartitions
from lakelatch.format.merge.column_groups import each_column_has_an_order
from lakelatch.storage.contract import Storage
from lakelatch.timeline.column_groups import COLUMN_GROUPS, ColumnGroup, show_column_groups
from lakelatch.timeline.properties_file import PROPERTIES_PATH
from lakelatch.timeline.table_config import (
    CDC_ENABLED,
    CDC_MODE,
    CUSTOM_KEYS,
    EVENT_TIME,
    FIELD_PREFIXED,
    KEY_ENCODING,
    TABLE_VERSIONS,
    VALUE_ONLY,
    TableConfig,
)
from lakelatch.transactions.base.settings import MODE_OPTION, NON_BLOCKING, OPTIMISTIC

_KEY_GENERATOR_TYPE = "hoodie.table.keygenerator.type"
_KEY_GENERATOR_CLASS = "hoodie.table.keygenerator.class"
_KEY_GENERATORS = ("SIMPLE", "COMPLEX", "NONPARTITION", "NONPARTITIONED", "TIMESTAMP", "TIMESTAMPBASED", "CUSTOM")
_EXTRACTOR = "hoodie.table.partition_extractor_class"


@dataclass(frozen=True)
class OpenedTable:
    """A table as this call sees it: its storage, its properties, and its columns (without meta columns).

    `schema_path` is the file that records the columns; a write that `changes_schema` adds those that are only in
    `schema`. A table that `is_new` is made with its first commit. `base_files` are this call's options for them.
    """

    storage: Storage
    config: TableConfig
    schema: pa.Schema
    schema_path: str = ""
    changes_schema: bool = False
    is_new: bool = False
    base_files: BaseFileOptions = field(default_factory=BaseFileOptions)

    @cached_property
    def full_schema(self) -> pa.Schema:
        """The schema of data files, with the meta columns first."""
        return with_meta_columns(self.schema)

    @cached_property
    def avro_schema(self) -> str:
        """The schema in commits."""
        return arrow_to_avro(self.schema, self.config.name)

    @cached_property
    def full_avro_schema(self) -> str:
        """The schema in base files."""
        return arrow_to_avro(self.full_schema, self.config.name)

    def with_base_files(self, options: BaseFileOptions) -> OpenedTable:
        """The table with these options for base files. Errors: `InvalidRequest` for unknown columns in them."""
        return replace(self, base_files=options.for_table(self.full_schema))


def check_writable(config: TableConfig) -> None:
    """`InvalidRequest` for a table that is read-only here."""
    if config.version not in TABLE_VERSIONS:
        raise InvalidRequest(
            f"the table {config.name!r} has hoodie.table.version={config.version}, whose log files are parquet files "
            f"of their own: lakelatch reads them, and writes versions {', '.join(map(str, TABLE_VERSIONS))}. Write to "
            "it with Hudi, or downgrade it with Hudi's downgrade command"
        )
    if config.metadata_partitions:
        raise InvalidRequest(
            f"the table {config.name!r} has a metadata table ({config.metadata_partitions}), which lakelatch does not "
            "keep: its readers would miss new files. Turn it off with Hudi (hoodie.metadata.enable=false) first"
        )
    if config.appends_only and not config.copies_on_write:
        raise InvalidRequest(
            f"the table {config.name!r} has no record key, and is {config.table_type}: its log files change rows by "
            "keys of its writer. Write to it with Hudi; reading is possible here"
        )
    if config.bucket_count is None and not config.appends_only:
        raise InvalidRequest(
            f"the table {config.name!r} says nowhere how many buckets it has, so it was made by another writer: "
            f"if all its writers use a SIMPLE bucket index, add {BUCKET_COUNT}=<their number> to {PROPERTIES_PATH}"
        )
    if config.timezone != "UTC":
        raise InvalidRequest(
            f"the table {config.name!r} has hoodie.table.timeline.timezone={config.timezone}: times would not be in "
            "order with those of lakelatch, which are in UTC"
        )
    config.check_mergeable()
    check_key_generator(config)


def check_key_generator(config: TableConfig) -> None:
    """`InvalidRequest` for a table whose other writers make keys or folders in an unknown way."""
    name = config.raw.get(_KEY_GENERATOR_CLASS, "").rpartition(".")[2].removesuffix("KeyGenerator")
    for option, found in ((_KEY_GENERATOR_TYPE, config.raw.get(_KEY_GENERATOR_TYPE)), (_KEY_GENERATOR_CLASS, name)):
        if found and found.upper().replace("_", "").removesuffix("AVRO") not in _KEY_GENERATORS:
            raise InvalidRequest(
                f"the table {config.name!r} has {option}={config.raw[option]}: lakelatch would put rows into other "
                "folders than this key generator does. Write to it with Hudi; reading is possible here"
            )
    if config.key_generator == CUSTOM_KEYS and config.partition_fields and not config.partition_kinds:
        raise InvalidRequest(
            f"the table {config.name!r} has {_KEY_GENERATOR_TYPE}={CUSTOM_KEYS}, as of its CustomKeyGenerator, and "
            f"{PROPERTIES_PATH} gives its partition fields no kinds: write hoodie.table.partition.fields as in "
            "region:SIMPLE,time:TIMESTAMP"
        )
    if config.time_fields:
        try:
            TimePartitions.of(dict(config.time_options))
        except InvalidRequest as error:
            raise InvalidRequest(
                f"the table {config.name!r} has {_KEY_GENERATOR_TYPE}={config.key_generator}, and {PROPERTIES_PATH} "
                f"does not say how folders are made of times: {error.message}. Add there what its writers use",
                option=error.details.get("option"),
            ) from error
    extractor = config.raw.get(_EXTRACTOR, "")
    if extractor.endswith("SlashEncodedDayPartitionValueExtractor"):
        raise InvalidRequest(
            f"the table {config.name!r} has {_EXTRACTOR}={extractor}: its writers make three folders of a day "
            "(2024/01/31), which lakelatch does not. Write to it with Hudi; reading is possible here"
        )
    if config.prefixed_keys is None:
        raise InvalidRequest(
            f"the table {config.name!r} says nowhere whether its keys are 'field:value' (written by Hudi 1.1 and "
            f"later) or plain values (0.14.1 to 1.0.2): look at {RECORD_KEY_COLUMN}, and add {KEY_ENCODING}="
            f"{FIELD_PREFIXED} or {VALUE_ONLY} to {PROPERTIES_PATH}"
        )


def check_agreement(options: WriteOptions, config: TableConfig) -> None:
    """`InvalidRequest` for options that differ from the table's properties."""
    claims = (
        (BUCKET_COUNT, options.bucket_count, config.bucket_count),
        (RECORD_KEY, options.record_key_fields, config.record_key_fields),
        (PARTITION_FIELD, options.partition_fields, config.partition_fields),
        (ORDERING_FIELD, options.ordering_field, config.ordering_field),
        (MERGE_MODE, options.merge_mode, config.merge_mode),
        (HASH_FIELD, options.hash_fields, config.hash_fields or config.record_key_fields),
        (COLUMN_GROUPS, _groups(options.column_groups), _groups(config.column_groups)),
        (TABLE_TYPE, options.table_type, config.table_type),
        (TABLE_NAME, options.table_name, config.name),
        (KEY_GENERATOR, options.key_generator, config.key_generator),
        (PARTITION_FIELD, options.partition_kinds or None, config.partition_kinds),
        *((key, value, dict(config.time_options).get(key)) for key, value in options.time_options),
        (HIVE_STYLE, options.hive_style, config.hive_style_partitioning),
        (URL_ENCODE, options.url_encode, config.url_encode_partitioning),
        (TABLE_VERSION, options.table_version, config.version),
        (CDC_ENABLED, options.cdc_enabled, config.cdc_enabled),
        (CDC_MODE, options.cdc_mode if config.cdc_enabled else None, config.cdc_mode),
    )
    for option, wanted, stored in claims:
        if wanted is not None and wanted != stored:
            raise InvalidRequest(
                f"{option}={_shown(wanted)}, and the table {config.name!r} was made with {_shown(stored)}: it cannot "
                "change later. Leave the option out, or write to a new table",
                option=option,
            )


def check_mode(options: WriteOptions, config: TableConfig) -> None:
    """`InvalidRequest` for non-blocking writes to a table where two writes of one file group cannot both commit."""
    if not options.non_blocking:
        return
    if config.copies_on_write:
        raise InvalidRequest(
            f"{MODE_OPTION}={NON_BLOCKING} needs a table that is MERGE_ON_READ, and {config.name!r} is "
            f"{config.table_type}: of two writes that make one file group's next base file only one can stay. Use "
            f"{OPTIMISTIC}",
            option=MODE_OPTION,
        )
    if not each_column_has_an_order(config):
        raise InvalidRequest(
            f"{MODE_OPTION}={NON_BLOCKING} needs {MERGE_MODE}={EVENT_TIME} and an ordering field "
            f"({ORDERING_FIELD}): without one, a compaction could change which writer's row wins. "
            f"Name one when the table is made (columns in {COLUMN_GROUPS} have their own), or use {OPTIMISTIC}"
        )


def _groups(groups: tuple[ColumnGroup, ...] | None) -> str | None:
    return None if groups is None else show_column_groups(groups) or "no groups"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return (",".join(map(str, value)) or "none") if isinstance(value, tuple) else str(value)
