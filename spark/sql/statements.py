"""The one entry: is a statement ours, and who carries it out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lakelatch.spark.session.catalog import FORMAT, plain_sql
from lakelatch.spark.sql import answers, changes, definitions, merges
from lakelatch.spark.sql.errors import UNSUPPORTED, InvalidStatement, in_words_of_spark
from lakelatch.spark.sql.forms import executed_text, plain_form
from lakelatch.spark.sql.literals import bound
from lakelatch.spark.sql.reads import Reads
from lakelatch.spark.sql.references import TABLE_CHANGES, references, table_names
from lakelatch.spark.sql.session import known_of
from lakelatch.spark.sql.tokens import Cursor, Name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SHAPE = re.compile(
    r"(--[^\r\n]*|/\*.*?\*/|\s+)|'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|\b[0-9][0-9.]*\b|(`[^`]*`)", re.DOTALL
)
_DEFINES = re.compile(r"\s*(create|drop|alter|use|refresh|replace|set)\b", re.IGNORECASE)
_SAYS_WHERE = re.compile(r"\bWITH\s*\(\s*['\"]path['\"]", re.IGNORECASE)
_EXPLAIN = re.compile(r"\s*EXPLAIN(\s+(EXTENDED|CODEGEN|COST|FORMATTED))?\s", re.IGNORECASE)
_QUERIES = ("SELECT", "INSERT", "MERGE", "UPDATE", "DELETE", "FROM", "VALUES", "TABLE")

_Change = Callable[[Reads, Cursor, str], "DataFrame | None"]
_CHANGES: dict[str, _Change] = {
    "DELETE": changes.delete,
    "UPDATE": changes.update,
    "INSERT": changes.insert,
    "MERGE": merges.merge,
    "TRUNCATE": lambda reads, cursor, _: changes.truncate(reads, cursor),
    "CREATE": lambda reads, cursor, _: definitions.create(reads, cursor),
    "ALTER": lambda reads, cursor, _: definitions.alter(reads, cursor),
    "DROP": lambda reads, cursor, _: definitions.drop(reads, cursor),
    "CALL": lambda reads, cursor, _: answers.call(reads, cursor),
    "SHOW": lambda reads, cursor, _: answers.show(reads, cursor),
}
_SPARKS_OWN = {"REFRESH", "USE", "SET", "RESET", "UNCACHE", "ADD", "LIST", "DECLARE", "COMMENT", "CLEAR"}
_READERS = {"INSERT", "MERGE", "UPDATE", "DELETE", "CREATE"}  # which may read ours for a table of another format
_CHANGERS = {"INSERT", "MERGE", "UPDATE", "DELETE", "TRUNCATE"}  # of a table that is there
_INSTEAD = {
    "OPTIMIZE": "CALL lakelatch.compact(table => '{0}') or CALL lakelatch.cluster(table => '{0}')",
    "VACUUM": "CALL lakelatch.clean(table => '{0}')",
    "RESTORE": "CALL lakelatch.restore(table => '{0}', as_of => '...')",
    "REPLACE": "DROP TABLE {0} and CREATE TABLE {0}, or INSERT OVERWRITE {0}",
    "BEGIN": "a spark.sql(...) for each statement of the script, as BEGIN ... END is carried out by Spark alone",
    "CACHE": "CACHE TABLE copy AS SELECT * FROM {0}, which keeps the rows of now",
    "FROM": "INSERT INTO ... SELECT ... FROM {0}, a statement for each table that is written",
    "LOAD": "INSERT INTO {0} SELECT * FROM parquet.`...`",
}


def statement(spark: SparkSession, text: str, args: Any = None, **frames: DataFrame) -> DataFrame | None:
    """Carries out a statement that names a table of ours; None for any other, which is Spark's as it stands.

    Ours are tables of Spark's catalog `USING lakelatch`, views of `Table.create_view`, and paths, as in
    `` lakelatch.`/data/flights` ``. All that a statement reads of one table is of one moment. Errors:
    `InvalidStatement`, which is an `AnalysisException` too, with the table as it was; those of `Table`.
    """
    reads = Reads(spark)
    executed = executed_text(spark, text, args)
    text, args = plain_form(spark, executed or text, args)
    reads.args = args
    if not _may_be_ours(reads, text) or _SAYS_WHERE.search(text):
        return None
    if executed:
        raise InvalidStatement(
            "EXECUTE IMMEDIATE: the statement names a table of Lakelatch, and Spark alone would carry it out; give it "
            "to spark.sql(text, args={...}) itself",
            UNSUPPORTED,
        )
    if frames:
        text = _with_frames(reads, text, frames)
    try:
        with in_words_of_spark():
            return _carried_out(reads, text, args)
    finally:
        reads.close()


def _with_frames(reads: Reads, text: str, frames: Mapping[str, Any]) -> str:
    """The text with names for the frames that it has in braces."""
    for name, frame in frames.items():
        if not hasattr(frame, "createOrReplaceTempView"):
            raise InvalidStatement(f"{{{name}}} is no frame: give values as args={{...}}, and name them :{name}")
        reads.given[f"lakelatch_given_{name}".lower()] = frame
    try:
        return text.format(**{name: f"lakelatch_given_{name}" for name in frames})
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise InvalidStatement(f"the names in braces are not those of the frames: {error}") from error


def _may_be_ours(reads: Reads, text: str) -> bool:
    """Whether a statement may name a table of ours: by its words, and by what the session's catalog said of its names.

    Names that were none of ours are remembered until a statement makes, drops or refreshes something.
    """
    known = known_of(reads.spark)
    if _DEFINES.match(text):
        known.forget()
    if FORMAT in text.lower():
        return True
    shape = _SHAPE.sub(lambda found: found[2] or " " if found[1] or found[2] else "''", text)
    names = known.shapes.get(shape)
    if names is None:
        names = table_names(_EXPLAIN.sub("", text, count=1) if _EXPLAIN.match(text) else text)
        if TABLE_CHANGES in text.upper():
            names = (*names, *(one.name for one in references(text) if one.arguments is not None))
        known.remember_shape(shape, names)
    others = known.others
    return any(name.key not in others and reads.look_up(name) is not None for name in names)


def _carried_out(reads: Reads, text: str, args: Any) -> DataFrame | None:
    explained = _EXPLAIN.match(text)
    if explained:
        return _explained(reads, text, explained.end())
    cursor = Cursor.of(text)
    if cursor.at_end:
        return None
    head = cursor.tokens[0].upper
    common = ""
    if head == "WITH":
        common = cursor.until(*_QUERIES)
        head = "" if cursor.at_end else cursor.tokens[cursor.place].upper
    if head in ("DESCRIBE", "DESC"):
        return answers.describe(reads, cursor)
    change = _CHANGES.get(head)
    if change is not None:
        whole = bound(text, args)
        cursor = Cursor.of(whole)
        common = cursor.until(*_QUERIES) if common else ""
        given, reads.args = reads.args, None
        try:
            done = change(reads, cursor, common)
        except InvalidStatement:
            if head in _CHANGERS and not any(reads.look_up(name) is not None for name in table_names(whole)):
                return None  # the word stands for something else in it, and Spark says what is wrong
            raise
        if done is not None or head not in _READERS:
            return done
        reads.args = given
    elif head in _SPARKS_OWN:
        return None
    elif head in ("SELECT", "FROM", "VALUES", "TABLE", "(", "CACHE") and not _only_for_spark(cursor, head):
        pass
    else:
        _refuse(reads, text, head)
        return None
    return _query(reads, text, args)


def _only_for_spark(cursor: Cursor, head: str) -> bool:
    """Whether this is a form of its word that Spark knows for its own tables: CACHE of a name, FROM with INSERT."""
    words = {token.upper for token in cursor.tokens}
    return (head == "CACHE" and words.isdisjoint({"AS", "SELECT"})) or (head == "FROM" and "INSERT" in words)


def _query(reads: Reads, text: str, args: Any) -> DataFrame | None:
    """A statement that only reads what is ours."""
    if not reads.finds(text):
        return None
    found = references(text)
    if args and any(one.moment or one.arguments for one in found):
        text, reads.args = bound(text, args), None
    cursor = Cursor.of(text)
    return _cached(reads, cursor) if cursor.take("CACHE") else reads.frame(text[: cursor.tokens[-1].end])


def _cached(reads: Reads, cursor: Cursor) -> DataFrame:
    """`CACHE [LAZY] TABLE v [OPTIONS (...)] [AS] query`: a view of the frame, whose names nobody looks up again."""
    lazy = "LAZY " if cursor.take("LAZY") else ""
    cursor.expect("TABLE")
    name = cursor.name()
    options = ""
    if cursor.sees("OPTIONS"):
        start = cursor.start
        cursor.next()
        cursor.items()
        options = cursor.text[start : cursor.tokens[cursor.place - 1].end]
    cursor.take("AS")
    reads.frame(cursor.until()).createTempView(str(name))
    try:
        return plain_sql(reads.spark, f"CACHE {lazy}TABLE {name} {options}")
    except Exception:
        reads.spark.catalog.dropTempView(str(name))
        raise


def _explained(reads: Reads, text: str, end: int) -> DataFrame | None:
    rest = text[end:]
    if not reads.finds(rest):
        return None
    cursor = Cursor.of(rest)
    head = cursor.tokens[0].upper
    if head not in ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "("):
        raise InvalidStatement(f"EXPLAIN {head} of a table of Lakelatch: explain the query that it is made of")
    return reads.frame(rest, text[:end])


def _refuse(reads: Reads, text: str, head: str) -> None:
    """Errors: `InvalidStatement` if the statement names a table of ours."""
    named: list[Name] = [name for name in table_names(text) if reads.place(name) is not None]
    if named:
        instead = _INSTEAD.get(head, "SELECT, INSERT, UPDATE, DELETE, MERGE, or a CALL lakelatch.<service>(...)")
        raise InvalidStatement(
            f"{head} {named[0]}: this is not known for a table of Lakelatch; use {instead.format(named[0])}"
        )
