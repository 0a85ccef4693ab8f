"""What a reader or writer was told before it is asked to do something."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakelatch.spark.session.catalog import FORMAT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    class _Spark:  # whichever of Spark's classes comes behind
        def option(self, key: str, value: Any) -> Any: ...
        def options(self, **options: Any) -> Any: ...
else:
    _Spark = object

_DEFAULT_FORMAT = "spark.sql.sources.default"


@dataclass
class Said:
    """Words in the order in which Spark takes them: of an option or a mode, the last one counts."""

    format: str | None = None
    options: dict[str, object] = field(default_factory=dict)  # by names in lower case, as Spark compares them
    mode: str | None = None
    partition_by: tuple[str, ...] = ()
    refused: list[str] = field(default_factory=list)  # calls that mean nothing for tables of ours

    def option(self, key: str, value: object) -> None:
        if value is not None:
            self.options[key.lower()] = value

    def partitioned(self, columns: Iterable[Any]) -> None:
        found: list[str] = []
        for one in columns:
            found += one if isinstance(one, (list, tuple)) else [one]
        self.partition_by = tuple(found)

    def is_ours(self, spark: SparkSession) -> bool:
        """Whether the format is ours: the one that was named, or else the session's default."""
        named = self.format if self.format is not None else spark.conf.get(_DEFAULT_FORMAT)
        return str(named).lower() == FORMAT


class WithOptions(_Spark):
    """A reader or writer of Spark's that notes its options down."""

    _lakelatch_said: Said

    def option(self, key: str, value: Any) -> Any:
        self._lakelatch_said.option(key, value)
        return super().option(key, value)

    def options(self, **options: Any) -> Any:
        for key, value in options.items():
            self._lakelatch_said.option(key, value)
        return super().options(**options)
