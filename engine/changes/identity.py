"""Which rows of a table and of given data are one: they have the same record key and folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.format.avro import RECORD_KEY_COLUMN
from lakelatch.format.keygen.paths import partition_paths
from lakelatch.format.merge.conditions import Condition, OneOf, kind_of
from lakelatch.format.record_keys import record_keys
from lakelatch.timeline.table_config import TableConfig

#: Reads columns of the table, of rows that fulfil conditions, and perhaps of others; part by part.
Reader: TypeAlias = "Callable[[Iterable[str], tuple[Condition, ...]], Iterable[pa.Table]]"

_KEYS_MAX, _FOLDERS_MAX = 100_000, 64  # of a read that names them
_BETWEEN = "\0"  # is in no folder


@dataclass(frozen=True)
class Identity:
    """The columns that say which row one is, of a table that is there or still to be made."""

    config: TableConfig

    @property
    def keys(self) -> tuple[str, ...]:
        return self.config.record_key_fields

    @property
    def partitions(self) -> tuple[str, ...]:
        return self.config.partition_fields

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.keys, *self.partitions]))

    def texts(self, rows: pa.Table) -> pa.Array:
        """A text for each row, the same for two rows if they are one. Errors: those of `record_keys`, `folders`."""
        return pc.binary_join_element_wise(self.folders(rows), self._record_keys(rows), _BETWEEN)

    def folders(self, rows: pa.Table) -> pa.Array:
        """The partition of each row. Errors: those of `partition_paths`."""
        return partition_paths(rows, self.config)

    def conditions(self, rows: pa.Table) -> tuple[Condition, ...]:
        """What all rows of the table fulfil that are one with one of these; nothing if that would say little."""
        if rows.num_rows > _KEYS_MAX or not self.config.made_here or self.config.prefixed_keys is None:
            return ()
        wanted = tuple(pc.unique(self._record_keys(rows)).to_pylist())
        found: list[Condition] = [OneOf(RECORD_KEY_COLUMN, wanted)]
        # A folder's name may stand for several values, such as null and an empty text.
        plain = [name for name in self.partitions if name not in self.config.time_fields]
        for name in {*self.keys, *plain} if len(self.keys) == 1 else plain:
            values = pc.unique(rows[name]).to_pylist()
            few = name in self.keys or len(values) <= _FOLDERS_MAX
            if few and kind_of(rows.schema.field(name).type) is not None and not {None, ""} & set(values):
                found.append(OneOf(name, tuple(values)))
        return tuple(found)

    def known(self, rows: pa.Table, read: Reader) -> pa.Array:
        """Which of the rows are in the table. Reads nothing but the columns that say so."""
        seen = [self.texts(part) for part in read(self.names, self.conditions(rows)) if part.num_rows]
        return pc.is_in(self.texts(rows), value_set=pa.concat_arrays([pa.array([], pa.string()), *seen]))

    def twice(self, rows: pa.Table, among: pa.Table) -> pa.Array:
        """Which of the rows there are more than once among those that have them."""
        counts = pc.value_counts(self.texts(among))
        several = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
        return pc.is_in(self.texts(rows), value_set=several)

    def shown(self, rows: pa.Table, place: int) -> str:
        """A row as errors name it: `id=7, day=2026-11-21`."""
        values = {name: rows[name][place].as_py() for name in self.names}
        return ", ".join(f"{name}={_text(value)}" for name, value in values.items() if value is not None)

    def _record_keys(self, rows: pa.Table) -> pa.Array:
        return record_keys(rows, self.keys, bool(self.config.prefixed_keys), self.config.commas_in_keys)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
