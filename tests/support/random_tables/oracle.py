"""What a table is, in a few lines: rows by key, and what became of them with each commit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

Values = dict[str, Any]
Key = tuple[Any, ...]
BEGINNING = "20000101000000000"


@dataclass(frozen=True)
class Version:
    """What the last write that counts has made of a key; `values` are None if it deleted the row."""

    ts: int
    completion: str
    values: Values | None


@dataclass(frozen=True)
class Moment:
    """The table after a commit."""

    completion: str
    columns: dict[str, pa.DataType]
    versions: dict[Key, Version]

    def rows(self, after: str = BEGINNING) -> list[Values]:
        """The rows that were written after a time, in the order of their keys."""
        late = (one.values for _, one in sorted(self.versions.items()) if one.completion > after)
        there = (values for values in late if values is not None)
        return [{name: in_column(row.get(name), kind) for name, kind in self.columns.items()} for row in there]


@dataclass
class TableOracle:
    """Rows are identified by `key`. With `ordered` a write counts if its `ts` is not less than that of the last one."""

    key: tuple[str, ...]
    ordered: bool
    columns: dict[str, pa.DataType]
    versions: dict[Key, Version] = field(default_factory=dict)
    moments: list[Moment] = field(default_factory=list)

    def key_of(self, row: Values) -> Key:
        return tuple(row[name] for name in self.key)

    def put(self, rows: Iterable[Values], deleted: bool = False) -> None:
        """What is written or, by rows with keys and `ts`, deleted; `ended` then says when that completed."""
        for row in rows:
            there = self.versions.get(self.key_of(row))
            if there is None or not self.ordered or there.ts <= row["ts"]:
                self.versions[self.key_of(row)] = Version(row["ts"], "", None if deleted else dict(row))

    def forget(self, keys: Iterable[Key]) -> None:
        """What goes whatever its order, with the memory of it."""
        for key in list(keys):
            self.versions.pop(key, None)

    def ended(self, completion: str) -> None:
        for key, version in self.versions.items():
            if not version.completion:
                self.versions[key] = replace(version, completion=completion)
        self.moments.append(Moment(completion, dict(self.columns), dict(self.versions)))

    def rows(self) -> list[Values]:
        """The rows as they are now, with values as they were written."""
        return [one.values for _, one in sorted(self.versions.items()) if one.values is not None]


def in_column(value: Any, kind: pa.DataType) -> Any:
    """A value of a column that may have become wider since."""
    return str(value) if value is not None and pa.types.is_string(kind) else value
