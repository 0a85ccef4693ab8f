"""Refusals that are an `InvalidRequest` here, and an `AnalysisException` for those who write Spark's own words."""

from __future__ import annotations

from typing import Any

from pyspark.errors import AnalysisException

from lakelatch.errors import InvalidRequest

TABLE_EXISTS = "TABLE_OR_VIEW_ALREADY_EXISTS"
TABLE_MISSING = "TABLE_OR_VIEW_NOT_FOUND"
PATH_EXISTS = "PATH_ALREADY_EXISTS"
PATH_MISSING = "PATH_NOT_FOUND"
TOO_FEW_COLUMNS = "INSERT_COLUMN_ARITY_MISMATCH.NOT_ENOUGH_DATA_COLUMNS"
TOO_MANY_COLUMNS = "INSERT_COLUMN_ARITY_MISMATCH.TOO_MANY_DATA_COLUMNS"


class RefusedByAnalysis(InvalidRequest, AnalysisException):
    """A refusal that Spark has a condition for, which `getCondition()` names; the table is as it was."""

    @classmethod
    def of(cls, condition: str, message: str, **details: Any) -> RefusedByAnalysis:
        return cls(f"[{condition}] {message}", condition=condition, **details)

    def getCondition(self) -> str | None:
        condition = self.details.get("condition")
        return None if condition is None else str(condition)

    def getErrorClass(self) -> str | None:
        return self.getCondition()

    def getMessage(self) -> str:
        return str(self)

    def getMessageParameters(self) -> dict[str, str]:
        return {}

    def getSqlState(self) -> str | None:
        return None

    def getQueryContext(self) -> list[Any]:
        return []
