"""What a statement is refused with: an error of ours that is one of Spark's as well."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from pyspark.errors import PySparkException

from lakelatch.errors import InvalidRequest
from lakelatch.spark.session.refusals import RefusedByAnalysis

SYNTAX = "PARSE_SYNTAX_ERROR"
UNSUPPORTED = "UNSUPPORTED_FEATURE.TABLE_OPERATION"
_CONDITIONS = {  # by what the errors of `Table` say
    "is matched by more than one row of the source": "MERGE_CARDINALITY_VIOLATION",
    "row of the source would be the new row": "MERGE_CARDINALITY_VIOLATION",
    "is of the record key, by which": "UNSUPPORTED_FEATURE.UPDATE_COLUMN_OF_KEY",
    "is no column of the table": "UNRESOLVED_COLUMN",
    "does not fit into the column": "CAST_OVERFLOW_IN_TABLE_INSERT",
    "the condition of the overwrite does not hold": "REPLACE_WHERE_VIOLATION",
}


class InvalidStatement(RefusedByAnalysis):
    """A statement that cannot be carried out; the table is as it was. `getCondition()` is Spark's name for the case."""

    code = "LAKELATCH-STATEMENT"

    def __init__(self, message: str, condition: str = "", **details: Any) -> None:
        super().__init__(message, **({"condition": condition} if condition else {}), **details)

    def getCondition(self) -> str:
        return super().getCondition() or UNSUPPORTED


def refuse_evolution(statement: str, table: str) -> NoReturn:
    """Errors: `InvalidStatement` for a statement WITH SCHEMA EVOLUTION that changes this table."""
    raise InvalidStatement(
        f"{statement} WITH SCHEMA EVOLUTION INTO {table}: add the columns first, ALTER TABLE {table} ADD COLUMNS, and "
        "leave these words out"
    )


@contextmanager
def in_words_of_spark() -> Iterator[None]:
    """Turns what `Table` refuses into `InvalidStatement`, under the condition that Spark has for it."""
    try:
        yield
    except RefusedByAnalysis:
        raise
    except InvalidRequest as error:
        cause = error.__cause__
        of_cause = cause.getCondition() if isinstance(cause, PySparkException) else None
        ours = next((name for words, name in _CONDITIONS.items() if words in error.message), None)
        raise InvalidStatement(error.message, ours or of_cause or UNSUPPORTED, **error.details) from error
