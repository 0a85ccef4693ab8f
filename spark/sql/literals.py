"""Values of parameters as Spark's literals. A value is written by its type; no text of a value is read as SQL."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import pairwise
from typing import Any

from lakelatch.spark.sql.errors import InvalidStatement
from lakelatch.spark.sql.tokens import QUOTED, WORD, replaced, tokens_of

_PLAIN = re.compile(r"[A-Za-z0-9 _.:/+@-]*")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def bound(text: str, args: Any) -> str:
    """A text with its parameters `:name` or `?` replaced by what `args` say. Those without a value stay."""
    if not args:
        return text
    tokens = tokens_of(text)
    changes = []
    if isinstance(args, Mapping):
        for place, (colon, token) in enumerate(pairwise(tokens)):
            joined = colon.text == ":" and token.kind == WORD and colon.end == token.start
            of_value = place > 0 and tokens[place - 1].end == colon.start and tokens[place - 1].kind in (WORD, QUOTED)
            of_type = place > 0 and tokens[place - 1].text == ":" and tokens[place - 1].end == colon.start  # a::string
            if joined and not of_value and not of_type and token.text in args:
                changes.append((colon.start, token.end, literal(args[token.text])))
    else:
        places = [token for token in tokens if token.text == "?"]
        changes += [(token.start, token.end, literal(value)) for token, value in zip(places, args, strict=False)]
    return replaced(text, changes)


def literal(value: Any) -> str:
    """The literal of a Python value. Errors: `InvalidStatement` for a kind that has none."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return _number(str(value)) if abs(value) < 2**31 else f"CAST('{value}' AS BIGINT)"
    if isinstance(value, float):
        return f"CAST('{value!r}' AS DOUBLE)"
    if isinstance(value, Decimal) and value.is_finite():
        return _number(f"{value:f}BD")
    if isinstance(value, str):
        return f"'{value}'" if _PLAIN.fullmatch(value) else f"CAST(X'{value.encode().hex()}' AS STRING)"
    if isinstance(value, (bytes, bytearray)):
        return f"X'{value.hex()}'"
    if isinstance(value, datetime):
        return f"timestamp_micros({(value.astimezone(timezone.utc) - _EPOCH) // timedelta(microseconds=1)})"
    if isinstance(value, date):
        return f"DATE'{value.isoformat()}'"
    if isinstance(value, Sequence):
        return f"array({', '.join(map(literal, value))})"
    if isinstance(value, Mapping):
        return f"map({', '.join(f'{literal(key)}, {literal(inner)}' for key, inner in value.items())})"
    raise InvalidStatement(
        f"a parameter is a {type(value).__name__}: give a number, a text, a time, bytes, or a list or dict of these",
        "INVALID_SQL_ARG",
    )


def _number(text: str) -> str:
    """The number in brackets if it is negative: behind another minus its own would begin a comment."""
    return f"({text})" if text.startswith("-") else text
