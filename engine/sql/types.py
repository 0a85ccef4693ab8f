"""Types and columns as SQL names them, as types of Arrow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from lakelatch.engine.sql.parsing import parsed
from lakelatch.errors import InvalidRequest
from lakelatch.format.avro import with_comment

_PLAIN = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int32(),
    "SMALLINT": pa.int32(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "TEXT": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),  # Spark's TIMESTAMP is a moment
    "TIMESTAMPLTZ": pa.timestamp("us", "UTC"),
    "TIMESTAMPNTZ": pa.timestamp("us"),
}
_DECIMAL = (10, 0)  # of a DECIMAL that says nothing, as in Spark


def schema_of(schema: Any) -> pa.Schema:
    """Columns of a table: a schema of Arrow, or what gives one, or text such as `id long, v string`.

    Errors: `InvalidRequest`.
    """
    if isinstance(schema, pa.Schema):
        return schema
    if hasattr(schema, "__arrow_c_schema__"):
        return pa.schema(schema)
    if not isinstance(schema, str):
        raise InvalidRequest(
            f"schema={schema!r} is no schema: give one of Arrow, or text such as 'id long, v string'", option="schema"
        )
    from sqlglot import exp

    tree = parsed(f"CREATE TABLE t ({schema})", f"schema={schema!r}")
    columns = tree.this.expressions if isinstance(tree, exp.Create) and isinstance(tree.this, exp.Schema) else []
    if not columns or not all(isinstance(one, exp.ColumnDef) and one.args.get("kind") for one in columns):
        raise InvalidRequest(f"schema={schema!r}: name columns and types, as in 'id long, v string'", option="schema")
    return pa.schema(_fields(columns))


def _fields(columns: Iterable[Any]) -> list[pa.Field]:
    """Columns of a table or a struct, with their comments."""
    return [with_comment(one.name, arrow_type(one.args["kind"]), _comment(one)) for one in columns]


def _comment(column: Any) -> str:
    from sqlglot import exp

    said = (one.kind for one in column.args.get("constraints") or ())
    return next((one.this.name for one in said if isinstance(one, exp.CommentColumnConstraint)), "")


def arrow_type(kind: Any) -> pa.DataType:
    """The type of Arrow for one of sqlglot's tree. Errors: `InvalidRequest`."""
    from sqlglot import exp

    name, parts = kind.this.name if isinstance(kind.this, exp.DataType.Type) else "", kind.expressions
    if name in _PLAIN:
        return _PLAIN[name]
    if name == "DECIMAL":
        return pa.decimal128(*[int(one.name) for one in parts] or _DECIMAL)
    if name == "ARRAY" and parts:
        return pa.list_(arrow_type(parts[0]))
    if name == "MAP" and len(parts) == 2:
        return pa.map_(*map(arrow_type, parts))
    if name == "STRUCT" and parts:
        return pa.struct(_fields(parts))
    raise InvalidRequest(f"the type {kind.sql('spark')} cannot be stored: use string, a number, date or timestamp")
