"""`lakelatch.enable(spark)`: one session reads and writes tables of ours by Spark's own words, at Spark's own speed.

The session is given a class of its own, which is a subclass of the one that it had; readers and writers that it hands
out are treated alike. Frames are made by PySpark in a hundred places, so their `write`, `writeTo` and `writeStream` are
looked up in the session of each frame, and are Spark's for every other session.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from copy import copy
from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypeVar

from lakelatch.errors import InvalidRequest
from lakelatch.spark.enabled.reader import EnabledReader
from lakelatch.spark.enabled.table_writer import EnabledTableWriter
from lakelatch.spark.enabled.writer import EnabledWriter
from lakelatch.spark.sql import statement
from lakelatch.spark.sql.session import known_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.catalog import Catalog
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    _Session = SparkSession
    _Catalog = Catalog
    _StreamWriter = DataStreamWriter
else:
    _Session = _Catalog = _StreamWriter = object

T = TypeVar("T")
_LOOKED_UP = ("write", "writeTo", "writeStream")
_lock = threading.Lock()
_made: dict[tuple[Any, Any], type[Any]] = {}
_sessions: weakref.WeakSet[Any] = weakref.WeakSet()


def enable(spark: SparkSession) -> SparkSession:
    """From now on this session reads and writes tables of ours by Spark's own words; returns the session.

    `spark.read.format("lakelatch").load(path)` and `spark.table` of a table `USING lakelatch` give the frame that
    `lakelatch.read` gives; `df.write.format("lakelatch")` and `df.writeTo` do what `lakelatch.write` and `Table` do.
    Every other format, and every other session of the process, are as before. Twice is once; `disable` takes it back.
    Errors: `InvalidRequest` for what is no session, one that was stopped, or one that another version has enabled.
    """
    ensure_usable(spark)
    mine, other = version("lakelatch"), getattr(type(spark), "lakelatch_version", None)
    if other is not None:
        if other != mine:
            raise InvalidRequest(
                f"this session was enabled by lakelatch {other}, and this is {mine}: call lakelatch.disable(spark) "
                "first, or start the process again"
            )
        return spark
    with _lock:
        kind = frame_kind(spark)
        for name in _LOOKED_UP:
            if not hasattr(vars(kind)[name], "lakelatch_original"):
                setattr(kind, name, PerSession(vars(kind)[name], name))
        spark.__class__ = _enabled(type(spark), EnabledSession, mine)
        _sessions.add(spark)
    return spark


def disable(spark: SparkSession) -> None:
    """Takes `enable` back for this session; its frames stay as they are. Without `enable` it does nothing."""
    plain = getattr(type(spark), "lakelatch_base", None)
    if plain is None:
        return
    with _lock:
        spark.__class__ = plain
        _sessions.discard(spark)
        kind = frame_kind(spark)
        if not any(frame_kind(other) is kind for other in _sessions):
            for name in _LOOKED_UP:
                found = vars(kind)[name]
                if isinstance(found, PerSession):
                    setattr(kind, name, found.lakelatch_original)


def ensure_usable(spark: Any) -> None:
    """Errors: `InvalidRequest` for what is no Spark session, and for one that was stopped."""
    context = getattr(spark, "_sc", None)
    if context is None and not hasattr(spark, "is_stopped"):
        raise InvalidRequest(f"a {type(spark).__qualname__} is no Spark session: give the one of SparkSession.builder")
    stopped = spark.is_stopped if context is None else context._jsc is None
    if stopped:
        raise InvalidRequest("the Spark session has been stopped: make another one, and enable that")


def frame_kind(spark: SparkSession) -> type[Any]:
    """The class of the frames of a session."""
    connects = any(kind.__module__ == "pyspark.sql.connect.session" for kind in type(spark).__mro__)
    found: type[Any] = import_module(f"pyspark.sql.{'connect' if connects else 'classic'}.dataframe").DataFrame
    return found


class PerSession:
    """An attribute of Spark's frames that a session may answer for its own; whoever asks the class gets Spark's."""

    def __init__(self, original: Any, name: str) -> None:
        self.lakelatch_original = original
        self._name = name
        self.__doc__ = original.__doc__

    def __get__(self, frame: Any, kind: type[Any] | None = None) -> Any:
        if frame is None:
            return self.lakelatch_original
        found = self.lakelatch_original.__get__(frame, kind)
        own = getattr(type(frame.sparkSession), f"lakelatch_{self._name}", None)
        return found if own is None else own(frame, found)

    def __set__(self, frame: Any, value: Any) -> None:
        raise AttributeError(f"can't set attribute {self._name!r}")


class EnabledSession(_Session):
    """What an enabled session does otherwise than its class."""

    lakelatch_version: str
    lakelatch_base: type[SparkSession]

    @property
    def read(self) -> Any:
        reader = as_enabled(super().read, EnabledReader)
        reader.begin(self)
        return reader

    @property
    def catalog(self) -> Any:
        catalog = as_enabled(copy(super().catalog), EnabledCatalog)  # of Classic, which keeps its own
        catalog.begin(self)
        return catalog

    def table(self, tableName: str) -> Any:
        return self.read.table(tableName)

    def sql(self, sqlQuery: str, args: Any = None, **kwargs: Any) -> Any:
        found = statement(self, sqlQuery, args, **kwargs)
        return super().sql(sqlQuery, args, **kwargs) if found is None else found

    def newSession(self) -> Any:
        made = super().newSession()
        made.__class__ = getattr(type(made), "lakelatch_base", type(made))
        return made

    @staticmethod
    def lakelatch_write(frame: DataFrame, writer: Any) -> Any:
        writer = as_enabled(writer, EnabledWriter)
        writer.begin(frame)
        return writer

    @staticmethod
    def lakelatch_writeTo(frame: DataFrame, write_to: Callable[[str], Any]) -> Any:
        def writer_to(table: str) -> Any:
            writer = as_enabled(write_to(table), EnabledTableWriter)
            writer.begin(frame, table)
            return writer

        return writer_to

    @staticmethod
    def lakelatch_writeStream(frame: DataFrame, writer: Any) -> Any:
        return as_enabled(writer, EnabledStreamWriter)


class EnabledCatalog(_Catalog):
    """The catalog's words, as Spark has them; a plain name means another table where the current schema is another."""

    def begin(self, spark: SparkSession) -> None:
        self._lakelatch_session = spark

    def setCurrentCatalog(self, catalogName: str) -> None:
        super().setCurrentCatalog(catalogName)
        known_of(self._lakelatch_session).forget()

    def setCurrentDatabase(self, dbName: str) -> None:
        super().setCurrentDatabase(dbName)
        known_of(self._lakelatch_session).forget()


class EnabledStreamWriter(_StreamWriter):
    """A stream's writer, as Spark has it; `foreachBatch` is given frames of a session that is enabled as well."""

    def foreachBatch(self, func: Callable[[DataFrame, int], None]) -> Any:
        return super().foreachBatch(partial(_enabled_batch, func))


def _enabled_batch(func: Callable[[DataFrame, int], None], frame: DataFrame, number: int) -> None:
    enable(frame.sparkSession)
    func(frame, number)


def as_enabled(made: Any, own: type[Any]) -> Any:
    """The object that Spark has made, with our methods before those of its class."""
    made.__class__ = _enabled(type(made), own)
    return made


def _enabled(base: type[Any], own: type[Any], by: str = "") -> type[Any]:
    """The subclass of one of Spark's classes that has our methods before its own; made once."""
    found = _made.get((base, own))
    if found is not None:
        return found
    attributes: dict[str, Any] = {"__module__": base.__module__, "__doc__": base.__doc__, "lakelatch_base": base}
    if by:
        attributes["lakelatch_version"] = by
    return _made.setdefault((base, own), type(base.__name__, (own, base), attributes))
