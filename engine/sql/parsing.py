"""The tree of a text of SQL, in Spark's dialect."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Any

from lakelatch.errors import InvalidRequest


@lru_cache(256)  # each batch of a read asks again
def parsed(text: str, what: str) -> Any:
    """Sqlglot's tree, which must not be changed; `what` says in errors where the text stands.

    Errors: `InvalidRequest`.
    """
    from sqlglot import parse_one
    from sqlglot.errors import SqlglotError

    try:
        return parse_one(text, dialect=_dialect())
    except (SqlglotError, RecursionError) as error:
        said = re.sub(r"\x1b\[[^m]*m", "", str(error)).splitlines()[0]
        raise InvalidRequest(f"{what} cannot be understood: {said}") from error


@cache
def _dialect() -> Any:
    """Spark's, without the warnings of what it reads in part. Imported by the first text that needs it."""
    from sqlglot.dialects.spark import Spark

    parser: Any = type("Parser", (Spark.Parser,), {"_warn_unsupported": lambda self: None})
    dialect: Any = type("Dialect", (Spark,), {"Parser": parser})
    return dialect()
