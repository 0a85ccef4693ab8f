"""Errors of a Python data source as users should see them: what they say, without the stack of a process of Spark's."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from lakelatch.errors import InvariantBroken, LakelatchError

P = ParamSpec("P")
T = TypeVar("T")
_HIDE = "SPARK_HIDE_TRACEBACK"  # what `spark.sql.execution.pyspark.udf.hideTraceback.enabled` sets for a whole session


def shown_plainly(function: Callable[P, T]) -> Callable[P, T]:
    """For what Spark calls in a process of its own: the first line of its error is ours, and no stack comes before it.

    That process ends with the error, so no other error is shown without a stack.
    """

    @wraps(function)
    def called(*args: P.args, **named: P.kwargs) -> T:
        try:
            return function(*args, **named)
        except InvariantBroken:  # its stack is asked for
            raise
        except LakelatchError:
            if _belongs_to_spark():
                os.environ[_HIDE] = "1"
            raise

    return called


def _belongs_to_spark() -> bool:
    """Whether this process was started by Spark's JVM, and not by a user."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
