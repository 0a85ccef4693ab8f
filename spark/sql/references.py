"""Which tables and columns a text names, and where. Sqlglot tells; what is not its business stays as it is."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lakelatch.spark.sql.errors import SYNTAX, InvalidStatement
from lakelatch.spark.sql.tokens import STRING, WORD, Cursor, Name, Token, replaced, tokens_of

if TYPE_CHECKING:
    from sqlglot import exp

TABLE_CHANGES = "TABLE_CHANGES"
_SELECT = "SELECT "
#: What makes another choice of rows each time that it is asked.
_VOLATILE = {"RAND", "RANDN", "RANDOM", "RANDSTR", "UNIFORM", "UUID", "SHUFFLE", "SPARK_PARTITION_ID"}
_VOLATILE |= {"MONOTONICALLY_INCREASING_ID"}


@dataclass(frozen=True)
class Reference:
    """A table where rows of it are read. The text from `start` to `end` has its name and its moment."""

    name: Name
    start: int
    end: int
    named: bool  # it has an alias
    moment: tuple[str, str] | None = None  # VERSION or TIMESTAMP, and of what
    arguments: tuple[str, ...] | None = None  # of table_changes


@cache
def _dialect() -> Any:
    """Spark's, without the warnings of what it reads in part. Imported by the first statement that needs it."""
    from sqlglot.dialects.spark import Spark

    parser: Any = type("Parser", (Spark.Parser,), {"_warn_unsupported": lambda self: None})
    dialect: Any = type("Dialect", (Spark,), {"Parser": parser})
    return dialect()


def parsed(text: str) -> Any:
    """Sqlglot's tree of a statement. Errors: `InvalidStatement`."""
    from sqlglot import parse_one
    from sqlglot.errors import SqlglotError

    try:
        return parse_one(text, dialect=_dialect())
    except (SqlglotError, RecursionError) as error:
        raise InvalidStatement(
            "this statement names a table of Lakelatch and is not understood "
            f"({re.sub(chr(27) + '[^m]*m', '', str(error)).splitlines()[0]}): read the table as a frame, "
            'spark.read.format("lakelatch").load(path).createOrReplaceTempView(name), and query that name',
            SYNTAX,
        ) from error


def table_names(text: str) -> tuple[Name, ...]:
    """The names of tables in any statement, those of common table expressions left out."""
    from sqlglot import exp

    try:
        tree = parsed(_without(text, _moments(text, tokens_of(text))))
    except InvalidStatement:
        return tuple(_names_behind_words(text))
    if isinstance(tree, (exp.Command, exp.Alias)):
        return tuple(_names_behind_words(text))
    found = [_name(table) for table in tree.find_all(exp.Table) if not _is_common(table)]
    return tuple(name for name in found if name is not None)


def _names_behind_words(text: str) -> Iterator[Name]:
    """What comes behind the words that a table's name follows, in a statement that is not understood."""
    cursor = Cursor.of(text)
    words = {"FROM", "JOIN", "INTO", "UPDATE", "TABLE", "USING", "OVERWRITE", "DETAIL", "HISTORY", "EXISTS", "OPTIMIZE"}
    words |= {"IN", "EXTENDED", "FORMATTED"}  # of SHOW COLUMNS and DESCRIBE
    before = ""
    while not cursor.at_end:
        token = cursor.tokens[cursor.place]
        names = token.kind in (WORD, "quoted") and token.upper not in words
        if names and (before in words or cursor.place == 1):
            yield cursor.name()
            before = ""
        else:
            cursor.place += 1
            before = token.upper


def references(text: str) -> list[Reference]:
    """The places of a query, or of a condition, at which tables are read. Errors: `InvalidStatement`."""
    from sqlglot import exp

    shift = 0
    tokens = tokens_of(text)
    if not _is_query(tokens):
        text, shift = _SELECT + text, len(_SELECT)
    tokens = tokens_of(text)
    moments = _moments(text, tokens)
    tree = parsed(_without(text, moments))
    after = {token.end: following.start for token, following in pairwise(tokens)}
    found = list(_changes(text, tokens))
    for table in tree.find_all(exp.Table):
        name = _name(table)
        if name is None or _is_common(table):
            continue
        moment, end = moments.get(after.get(name.end, -1), (None, name.end))
        named = bool(table.alias) or isinstance(table.parent, exp.TableSample) or "sample" in table.args
        found.append(Reference(name, name.start, end, named, moment))
    return [_shifted(one, -shift) for one in found]


def _shifted(one: Reference, by: int) -> Reference:
    name = Name(one.name.parts, one.name.start + by, one.name.end + by)
    return Reference(name, one.start + by, one.end + by, one.named, one.moment, one.arguments)


def _is_query(tokens: list[Token]) -> bool:
    heads = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "INSERT", "CREATE", "CACHE", "MERGE", "UPDATE", "DELETE")
    first = next((token.upper for token in tokens if token.text != "("), "")
    return first in heads and not (tokens[0].text == "(" and first not in heads)


def _name(table: exp.Table) -> Name | None:
    """Where a table is named whose rows are read; None if it is not named, or not read."""
    from sqlglot import exp

    parts = table.parts
    if table.find_ancestor(exp.Hint) is not None:  # an alias, in a text of its own, by whose places nothing is found
        return None
    if not all(isinstance(part, exp.Identifier) and "start" in part.meta for part in parts):
        return None
    return Name(tuple(part.name for part in parts), parts[0].meta["start"], parts[-1].meta["end"] + 1)


def _is_common(table: exp.Table) -> bool:
    """Whether the name is that of a common table expression, where it stands."""
    if table.args.get("db") is not None:
        return False
    name = table.name.lower()
    inner: Any = table
    node: Any = table.parent
    while node is not None:
        if type(node).__name__ == "With":  # an expression knows those before it, and itself if it is recursive
            for one in node.expressions:
                if one.alias.lower() == name and (one is not inner or node.args.get("recursive")):
                    return True
                if one is inner:
                    break
            inner, node = node.parent, node.parent.parent
            continue
        common = node.args.get("with_") or node.args.get("with")
        if common is not None and any(one.alias.lower() == name for one in common.expressions):
            return True
        inner, node = node, node.parent
    return False


def _moments(text: str, tokens: list[Token]) -> dict[int, tuple[tuple[str, str], int]]:
    """The clauses `[FOR] VERSION | TIMESTAMP AS OF ...` by where they begin; each with where it ends."""
    found = {}
    for place, token in enumerate(tokens):
        kind = token.upper.removeprefix("SYSTEM_")
        cursor = Cursor(text, tokens, place + 1)
        is_clause = kind in ("VERSION", "TIMESTAMP", "TIME") and cursor.take("AS", "OF")
        if is_clause and not any(cursor.sees(mark) for mark in ("FROM", ",", ")")):  # an alias `of` else
            has_for = place > 0 and tokens[place - 1].upper == "FOR"
            first = tokens[place - 1].start if has_for else token.start
            start, end = cursor.start, _value_end(cursor)
            while cursor.sees("-") or cursor.sees("+"):
                cursor.place += 1
                end = _value_end(cursor)
            found[first] = (("VERSION" if kind == "VERSION" else "TIMESTAMP", text[start:end]), end)
    return found


def _without(text: str, moments: dict[int, tuple[tuple[str, str], int]]) -> str:
    """The text with spaces in the place of the clauses, which sqlglot's versions understand in part."""
    return replaced(text, [(start, end, " " * (end - start)) for start, (_, end) in moments.items()])


def _value_end(cursor: Cursor) -> int:
    first = cursor.next()
    end = first.end
    if first.upper == "INTERVAL":
        cursor.next()
        end = cursor.next().end
    elif first.text == ":":
        end = cursor.next().end
    elif first.text == "(" or (first.kind == WORD and cursor.sees("(")):
        cursor.place -= first.text == "("
        cursor.in_brackets()
        end = cursor.tokens[cursor.place - 1].end
    elif first.upper in ("TIMESTAMP", "DATE", "TIMESTAMP_NTZ"):
        end = cursor.next().end
    return end


def _changes(text: str, tokens: list[Token]) -> Iterator[Reference]:
    """The uses of `table_changes('table', after[, until])`."""
    for place, token in enumerate(tokens):
        if token.upper == TABLE_CHANGES and tokens[place + 1 : place + 2] and tokens[place + 1].text == "(":
            cursor = Cursor(text, tokens, place + 1)
            items = cursor.items()
            end = tokens[cursor.place - 1].end
            table = tokens_of(items[0]) if items else []
            if len(table) != 1 or table[0].kind != STRING or len(items) not in (2, 3):
                raise InvalidStatement(
                    "table_changes('table', after) or table_changes('table', after, until): the table is a text, its "
                    "name or path, and the times are those of completion",
                    "DATATYPE_MISMATCH.UNEXPECTED_INPUT_TYPE",
                )
            name = Name(name_in(table[0].text[1:-1]), token.start, end)
            yield Reference(name, token.start, end, cursor_named(tokens, cursor.place), None, tuple(items[1:]))


def cursor_named(tokens: list[Token], place: int) -> bool:
    """Whether an alias comes next."""
    last = tokens[place] if place < len(tokens) else None
    return last is not None and (last.upper == "AS" or last.kind == "quoted")


def name_in(text: str) -> tuple[str, ...]:
    """The parts of a name that is given as a text: of a path it is the path."""
    if "/" in text and "`" not in text:
        return ("lakelatch", text)
    name = Cursor.of(text).name()
    return name.parts


def is_volatile(text: str) -> str | None:
    """The first function in a text that gives other values each time."""
    tokens = tokens_of(text)
    for token, after in pairwise(tokens):
        if token.upper in _VOLATILE and after.text == "(":
            return token.text
    return None


def has_query(text: str) -> bool:
    """Whether a query is nested in a condition."""
    return any(token.upper in ("SELECT", "FROM", "WITH") for token in tokens_of(text))


def qualified(text: str, alias: str, columns: Collection[str], aliases: Collection[str]) -> str:
    """An expression in which columns of one table alone may be named: those without a table get its alias."""
    from sqlglot import exp

    whole = _SELECT + text
    known, sides = {name.lower() for name in columns}, {name.lower() for name in aliases}
    changes, tree = [], parsed(whole)
    for column in tree.find_all(exp.Column):
        first = column.parts[0]
        if not isinstance(first, exp.Identifier) or "start" not in first.meta:
            continue
        if column.find_ancestor(exp.Select) is not tree or (len(column.parts) > 1 and first.name.lower() in sides):
            continue  # of a query within, or named in full
        if first.name.lower() in known:
            changes.append((first.meta["start"], first.meta["start"], f"`{alias}`."))
    return replaced(whole, changes)[len(_SELECT) :]
