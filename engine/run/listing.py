"""Rows about a table, such as its history: Arrow's to programs, a table to people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakelatch.notebook import html_rows, text_of

_LINES_MAX = 20


@dataclass(frozen=True, repr=False)
class Listing:
    """Rows that pandas, Polars, DuckDB and Arrow take as they are; notebooks and terminals show the first of them."""

    rows: pa.Table

    def to_arrow(self) -> pa.Table:
        """The rows as a table of Arrow."""
        return self.rows

    def to_pandas(self) -> Any:
        """The rows as a frame of pandas."""
        return self.rows.to_pandas()

    def to_pylist(self) -> list[dict[str, Any]]:
        """The rows as dictionaries."""
        found: list[dict[str, Any]] = self.rows.to_pylist()
        return found

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.to_pylist())

    def __getitem__(self, index: int) -> dict[str, Any]:
        """One row as a dictionary; -1 is the last one. Errors: `IndexError` beyond the rows."""
        found: dict[str, Any] = self.rows.slice(range(len(self))[index], 1).to_pylist()[0]
        return found

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.rows.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        """Lines of text, a row each, without the columns that are empty in all of them."""
        names = self._shown_names()
        first = self.rows.slice(0, _LINES_MAX).to_pylist()
        cells = [names, *([text_of(row[name]) for name in names] for row in first)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        padded = [[f"{text:{width}}" for text, width in zip(row, widths, strict=True)] for row in cells]
        more = len(self) - len(first)
        return "\n".join([*("  ".join(row).rstrip() for row in padded), *([f"and {more:,} more"] if more else [])])

    def _repr_html_(self) -> str:
        names = self._shown_names()
        rows = ([row[name] for name in names] for row in self.rows.slice(0, 1_000).to_pylist())
        return html_rows(names, rows, len(self))

    def _shown_names(self) -> list[str]:
        return [name for name in self.rows.column_names if self.rows[name].null_count < len(self) or not len(self)]
