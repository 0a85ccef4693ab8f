"""Conditions of a read in SQL: the parts of a text that surely restrict single columns.

Spark evaluates the text as a whole. Here it only saves reading, so everything that is not simple is passed over: only
conjunctions count, and of their parts those that compare a column with values.
"""

from __future__ import annotations

import datetime
import re

import pyarrow as pa

from lakelatch.format.merge.conditions import Bound, Condition, OneOf, Present, kind_of

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'[^'\\$]*')|(?P<number>-?\d+(?![\w.]))|(?P<odd>\d[\w.]*)|(?P<name>[^\W\d]\w*)|"
    r"`(?P<quoted>[^`]+)`|(?P<sign><=>|<=|>=|<>|!=|==|[=<>(),.]))"
)
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
#: Words around an AND that joins no conditions, or that bind more loosely than AND.
_UNCLEAR = {"OR", "BETWEEN", "CASE", "WHEN", "THEN", "ELSE", "END", "SELECT", "FROM"}
_Token = tuple[str, str]  # kind, text
_Read = tuple["int | None", tuple[Condition, ...]]
_NOTHING: _Read = (None, ())


def conditions_in(where: str, schema: pa.Schema) -> tuple[Condition, ...]:
    """Conditions that hold for all rows that fulfil the text; none if it is not understood."""
    return tuple(one for _, conditions in parts_of(where, schema) for one in conditions)


def parts_of(where: str, schema: pa.Schema) -> list[tuple[str, tuple[Condition, ...]]]:
    """The parts joined by AND, each with the conditions that hold for all rows that fulfil it.

    A part that is not understood has none, and a text that is not understood is one part.
    """
    tokens, spans = _tokens(where)
    found = [
        (where[spans[at][0] : spans[end - 1][1]], said) for at, end, said in _conjuncts(tokens, schema) if at < end
    ]
    return found or [(text, ()) for text in (where.strip(),) if text]


def mentioned(where: str, schema: pa.Schema) -> list[str]:
    """The columns that the text may mention."""
    text = where.casefold()
    return [name for name in schema.names if name.casefold() in text]


def _tokens(where: str) -> tuple[list[_Token], list[tuple[int, int]]]:
    """The text's tokens, and where each begins and ends; none if it has an unknown token."""
    found: list[_Token] = []
    spans: list[tuple[int, int]] = []
    at, end = 0, len(where.rstrip())
    while at < end:
        token = _TOKEN.match(where, at)
        if token is None:
            return [], []
        found.append((str(token.lastgroup), token[str(token.lastgroup)]))
        spans.append((token.end() - len(token[0].lstrip()), token.end()))
        at = token.end()
    return found, spans


def _conjuncts(tokens: list[_Token], schema: pa.Schema) -> list[tuple[int, int, tuple[Condition, ...]]]:
    """Where each part begins and ends, and its conditions; no parts if the text is not understood."""
    found: list[tuple[int, int, tuple[Condition, ...]]] = []
    at = 0
    while at < len(tokens):
        end, conditions = _read(tokens, at, schema)
        if end is None or (end < len(tokens) and not _is(tokens[end], "AND")):
            end, conditions = _end_of_part(tokens, at), ()
        if end is None:
            return []
        found.append((at, end, conditions))
        at = end + 1
    return found


def _end_of_part(tokens: list[_Token], at: int) -> int | None:
    """Where a part that is passed over ends; None if that is unknown."""
    depth = 0
    while at < len(tokens) and (depth or not _is(tokens[at], "AND")):
        kind, text = tokens[at]
        if not depth and kind == "name" and text.upper() in _UNCLEAR:
            return None
        depth += {"(": 1, ")": -1}.get(text, 0) if kind == "sign" else 0
        at += 1
    return at if depth == 0 else None


def _read(tokens: list[_Token], at: int, schema: pa.Schema) -> _Read:
    """Where the part that begins here ends, and its conditions; no end if it is not understood."""
    column = _column(tokens[at], schema)
    rest = tokens[at + 1 :]
    words = [text.upper() for kind, text in rest[:3]] if rest else []
    if column is None or not words:
        return _mirrored(tokens, at, schema)
    if words[:2] == ["IS", "NULL"]:
        return at + 3, (OneOf(column, (None,)),)
    if words == ["IS", "NOT", "NULL"]:
        return at + 4, (Present(column),)
    if words[:2] == ["IN", "("]:
        return _read_list(tokens, at + 3, column, schema)
    kind = schema.field(column).type
    end, value = _value(tokens, at + 2, kind)
    if end is None:
        return _NOTHING
    if words[0] == "BETWEEN" and end < len(tokens) and _is(tokens[end], "AND"):
        end, greatest = _value(tokens, end + 1, kind)
        return _NOTHING if end is None else (end, (Bound(column, ">=", value), Bound(column, "<=", greatest)))
    return _compared(column, words[0] if rest[0][0] == "sign" else "", value, end)


def _compared(column: str, sign: str, value: object, end: int) -> _Read:
    if sign in _MIRRORED:
        return end, (Bound(column, sign, value),)
    return (end, (OneOf(column, (value,)),)) if sign in ("=", "==", "<=>") else _NOTHING


def _mirrored(tokens: list[_Token], at: int, schema: pa.Schema) -> _Read:
    """Reads a comparison that begins with its value."""
    for end in (at + 1, at + 2):
        if end + 1 < len(tokens) and tokens[end][0] == "sign":
            column = _column(tokens[end + 1], schema)
            after, value = (None, None) if column is None else _value(tokens, at, schema.field(column).type)
            if column is None or after != end:
                return _NOTHING
            return _compared(column, _MIRRORED.get(tokens[end][1], tokens[end][1]), value, end + 2)
    return _NOTHING


def _read_list(tokens: list[_Token], at: int, column: str, schema: pa.Schema) -> _Read:
    values: list[object] = []
    while at < len(tokens):
        if _is(tokens[at], "NULL"):  # null equals nothing, so a null in the list matches no row
            end: int | None = at + 1
        else:
            end, value = _value(tokens, at, schema.field(column).type)
            values += [] if end is None else [value]
        if end is None or end >= len(tokens):
            return _NOTHING
        if tokens[end] == ("sign", ")"):
            return end + 1, (OneOf(column, tuple(values)),)
        if tokens[end] != ("sign", ","):
            return _NOTHING
        at = end + 1
    return _NOTHING


def _value(tokens: list[_Token], at: int, kind: pa.DataType) -> tuple[int | None, object]:
    """Where the value that begins here ends, and the value. For a date column a text is a date, as in Spark."""
    own = kind_of(kind)
    dated = _is(tokens[at], "DATE") if at + 1 < len(tokens) else False
    group, text = tokens[at + dated] if at < len(tokens) else ("", "")
    if group == "text":
        plain = text[1:-1]
        if not dated and own is str:
            return at + 1, plain
        if own is datetime.date and _DAY.fullmatch(plain):
            try:
                return at + 1 + dated, datetime.date.fromisoformat(plain)
            except ValueError:
                return None, None
    if dated:
        return None, None
    if group == "number" and own is int:
        return at + 1, int(text)
    if group == "name" and own is bool and text.upper() in ("TRUE", "FALSE"):
        return at + 1, text.upper() == "TRUE"
    return None, None


def _column(token: _Token, schema: pa.Schema) -> str | None:
    """The column of this name, or the only one of this name in another case."""
    if token[0] not in ("name", "quoted"):
        return None
    if token[1] in schema.names:
        return token[1]
    found = [name for name in schema.names if name.casefold() == token[1].casefold()]
    return found[0] if len(found) == 1 else None


def _is(token: _Token, word: str) -> bool:
    return token[0] == "name" and token[1].upper() == word
