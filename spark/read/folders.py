"""Folders whose names say the values of partition columns, as Spark reads them: `day=2026-11-24`."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lakelatch.timeline.table_config import TableConfig

_DEFAULT = "__HIVE_DEFAULT_PARTITION__"  # of null and of an empty text, between which Spark cannot tell


@dataclass(frozen=True)
class Folders:
    """The partition columns of a table, whose folders have their names and values.

    Where a folder says a value, the files in it have that one alone, and Spark then applies conditions on the column to
    the folders, before it opens a file.
    """

    columns: tuple[str, ...]
    encoded: bool

    @classmethod
    def of(cls, config: TableConfig, schema: pa.Schema) -> Folders | None:
        """None if folders do not say the values, or not of these columns, or of types that have several texts."""
        fields = config.partition_fields
        if not fields or not config.hive_style_partitioning or config.key_generator or config.time_fields:
            return None
        if not all(name in schema.names and _has_one_text(schema.field(name).type) for name in fields):
            return None
        return cls(fields, config.url_encode_partitioning)

    def say(self, partition: str) -> bool:
        """Whether the folder of a partition says its values, each as it was written."""
        parts = [part.partition("=") for part in partition.split("/")]
        if [name for name, _, _ in parts] != list(self.columns):
            return False
        values = [value for _, _, value in parts]
        return all(value not in ("", _DEFAULT) and (self.encoded or "%" not in value) for value in values)


def _has_one_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_int32(kind) or pa.types.is_int64(kind))
