"""Values as notebooks show them: small HTML tables of escaped text, in the notebook's own colours, light or dark."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any

_ROWS_MAX, _LETTERS_MAX, _NAMES_MAX = 100, 4_000, 5


class Shown:
    """A result that notebooks show as a table: of its `_lines`, which are the fields of a dataclass by default."""

    def _lines(self) -> Mapping[str, str]:
        """What is shown, by name; an empty text is left out."""
        value: Any = self
        return {field.name.replace("_", " "): text_of(getattr(self, field.name)) for field in dataclasses.fields(value)}

    def _repr_html_(self) -> str:
        return html_of(self._lines())


def html_of(lines: Mapping[str, str]) -> str:
    """Names and texts as an HTML table, escaped, without those that are empty."""
    return _table(f"<tr><th>{_cell(name)}</th><td>{_cell(text)}</td></tr>" for name, text in lines.items() if text)


def html_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]], count: int) -> str:
    """The first of `count` rows as an HTML table, escaped."""
    head = "".join(f"<th>{_cell(name)}</th>" for name in columns)
    shown = [
        "<tr>" + "".join(f"<td>{_cell(text_of(value))}</td>" for value in row) + "</tr>"
        for _, row in zip(range(_ROWS_MAX), rows, strict=False)
    ]
    more = count - len(shown)
    rest = f'<tr><td colspan="{len(columns)}">and {more:,} more</td></tr>' if more > 0 else ""
    return _table([f"<tr>{head}</tr>", *shown, rest])


def text_of(value: Any) -> str:
    """A value as it is shown; empty for None, nothing and no."""
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, datetime):
        return value.isoformat(" ", "seconds").replace("+00:00", "")
    if isinstance(value, tuple | list | frozenset):
        names = [str(one) for one in value]
        more = len(names) - _NAMES_MAX
        return ", ".join(names[:_NAMES_MAX]) + (f" and {more:,} more" if more > 0 else "")
    return "" if value is None else str(value)


def _table(rows: Iterable[str]) -> str:
    return f"<table>{''.join(rows)}</table>"


def _cell(text: str) -> str:
    return escape(text if len(text) <= _LETTERS_MAX else text[:_LETTERS_MAX] + " ...")
