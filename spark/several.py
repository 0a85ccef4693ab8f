"""Transactions over several tables and one moment of them, with a Spark session's frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from lakelatch.engine.arrow import ArrowTable
from lakelatch.engine.changes.merge import Merge as ArrowMerge
from lakelatch.engine.options.calls.arguments import Options, Time, merged, moment, reading
from lakelatch.engine.several.cut import Cut
from lakelatch.engine.several.refused_inside import RefusedInside
from lakelatch.engine.several.transaction import TablesTransaction
from lakelatch.engine.table.opening import open_table
from lakelatch.engine.table.table import OpenedTable
from lakelatch.errors import InvalidRequest
from lakelatch.spark.read.frames_out import read, read_staged
from lakelatch.spark.read.moments import last_write, moments_of, place_id, with_last_write
from lakelatch.spark.session.columns import Expression
from lakelatch.spark.table import Table
from lakelatch.spark.write.merge import Merge
from lakelatch.storage.uris import without_secrets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class snapshot(Cut):
    """One consistent moment of several tables: `lakelatch.snapshot([orders, lines])`.

    What a transaction over several tables has committed is in all of them or in none. `read` gives the rows of one
    table then, `save` and `load` keep the moment in a local file, and `times` says it to other engines. It stays
    readable for as long as each table keeps the files of it, and nobody takes back what it shows. Errors:
    `InvalidRequest` for a table that is not there or is named twice; `Unavailable` if the tables are never at rest
    together.
    """

    def read(
        self,
        spark: SparkSession,
        table: object,
        columns: Iterable[str] | None = None,
        where: Expression | None = None,
    ) -> DataFrame:
        """The rows of one of the tables at this moment. Errors: `InvalidRequest` for another table."""
        found = self.moment_of(table)
        own = merged(getattr(table, "_options", None), self._options)
        frame = read(spark, found.path, reading({**own, **moment(found.time)}, columns, None), where)
        self.ensure_still_there(found, own)
        return frame


class transaction(TablesTransaction):
    """A transaction over several tables: `with lakelatch.transaction([orders, lines]) as tx:`.

    At the end of the block it is committed in all tables, or in none; an error in the block aborts it. `tx.upsert`,
    `tx.insert`, `tx.merge`, `tx.update`, `tx.delete` and `tx.overwrite` are those of `Table` for one of the tables.
    `tx.read` and the changes that read see one moment of all tables, and what the transaction has written before. Rows
    may be frames of Spark, or whatever speaks Arrow.

    Under optimistic control a table that others have changed in the same file groups since that moment ends it
    (`WriteConflict`), with every table as it was: run the block again. `tx.results` has what was committed in each.
    Errors: those of the writes; `CommitUnknown` if an answer was lost (`lakelatch.resolve` finds out).
    """

    def table(self, table: object, spark: SparkSession | None = None) -> Table:
        """One of the tables, as this transaction reads and writes it.

        The session is that of a `Table`, `spark`, or the active one.
        """
        path = self._known(table)
        session = spark or getattr(table, "spark", None) or getattr(self._handles.get(path), "spark", None)
        if session is None:
            from pyspark.sql import SparkSession

            session = SparkSession.getActiveSession()
        if session is None:
            raise InvalidRequest(
                "no Spark session is active: name the tables as lakelatch.Table, or pass spark; without Spark name "
                "them as lakelatch.ArrowTable"
            )
        own = merged(getattr(table, "_options", None), self._options)
        return _TableInside(self, session, path, own)

    def _inside(self, table: object, spark: SparkSession | None = None) -> Any:
        """The table as this transaction writes it: without Spark if it is named as an `ArrowTable`, as in its list."""
        named = table if hasattr(table, "path") else self._handles.get(self._known(table))
        without_spark = spark is None and isinstance(named, ArrowTable)
        return self.arrow_table(table) if without_spark else self.table(table, spark)

    def read(
        self,
        spark: SparkSession,
        table: object,
        columns: Iterable[str] | None = None,
        where: Expression | None = None,
    ) -> DataFrame:
        """The rows of one of the tables at the transaction's moment, and as the transaction has changed them since."""
        return self.table(table, spark).to_df(columns=columns, where=where)

    def ensure_of_its_moment(self, frame: DataFrame) -> None:
        """Errors: `InvalidRequest` for rows of its tables that were read outside of it, at another moment."""
        paths = {place_id(storage): path for path, storage in self._storages.items()}
        for place, time in moments_of(frame):
            if place in paths:
                own = self.last_writes(paths[place])
                if time not in own:
                    raise InvalidRequest(
                        f"the frame has rows of {without_secrets(paths[place])} as of {time or 'its beginning'}, and "
                        f"the transaction sees it as of {own[0] or 'its beginning'}: read it inside the block "
                        "(tx.read), so that what others have committed in between is not overwritten unseen",
                        option="data",
                    )

    def telling(self, frame: DataFrame, path: str) -> DataFrame:
        """A frame of one of the tables as it is now, which says so to later transactions."""
        return with_last_write(frame, self._storages[path], self.last_writes(path)[-1])

    def last_writes(self, path: str) -> list[str]:
        """The last write of a table that this transaction has found, and the instants of its own since, in order."""
        staged = self.staged_in(path)
        return [last_write(self.mark_of(path).snapshot()), *(() if staged is None else staged.instants)]

    def upsert(self, table: object, data: Any, options: Options | None = None) -> None:
        """Writes rows; those whose keys are there take their place."""
        if _is_frame(data):
            self.table(table, data.sparkSession).upsert(data, options)
        else:
            super().upsert(table, data, options)

    def insert(self, table: object, data: Any, if_exists: str = "error", options: Options | None = None) -> None:
        """Writes rows whose keys are new; see `Table.insert`."""
        if _is_frame(data):
            self.table(table, data.sparkSession).insert(data, if_exists, options)
        else:
            super().insert(table, data, if_exists, options)

    def update(
        self, table: object, condition: Expression | None, set: Mapping[str, Expression], options: Options | None = None
    ) -> None:
        """Gives columns other values; see `Table.update`."""
        self._inside(table).update(condition, set, options)

    def delete(self, table: object, rows: Any, options: Options | None = None) -> None:
        """Deletes the rows where a condition holds, as `Table.delete`, or, with Arrow data, those with its keys."""
        if isinstance(rows, str) or _is_column(rows):
            self._inside(table).delete(rows, options)
        else:
            super().delete(table, rows, options)

    def merge(
        self, table: object, source: Any, condition: Expression | None = None, options: Options | None = None
    ) -> Merge | ArrowMerge:
        """Begins a merge, which its `execute()` stages; see `Table.merge`."""
        begun: Merge | ArrowMerge = self._inside(table, _session_of(source)).merge(source, condition, options)
        return begun

    def overwrite(
        self,
        table: object,
        data: Any,
        condition: Expression | None = None,
        partitions: str = "all",
        options: Options | None = None,
    ) -> None:
        """Puts rows in the place of what is there; see `Table.overwrite`."""
        self._inside(table, _session_of(data)).overwrite(data, condition, partitions, options)


class _TableInside(RefusedInside, Table):
    """A table inside a transaction: it is read as of the transaction's moment, and its writes are parts.

    So is a window of `changes`, unless another end is named; it shows nothing of what the transaction has staged.
    """

    def __init__(self, whole: transaction, spark: SparkSession, path: str, options: Options) -> None:
        super().__init__(spark, path, options)
        self._whole = whole

    def create_view(self, name: str, *given: object, **options: object) -> NoReturn:
        raise InvalidRequest(
            f"the view {name} of {without_secrets(self.path)} would follow the table as it is after each commit, and "
            "not as this transaction sees it: inside the block make one of a read, with "
            f"tx.read(spark, table).createOrReplaceTempView({name!r})",
            option="name",
        )

    def _window(self, after: Time, until: Time | None) -> Options:
        now = self._whole.moment_of(self.path)
        return super()._window(after, now if until is None else until)

    def _read(
        self, more: Options, columns: Iterable[str] | None, meta_columns: bool | None, where: Expression | None = None
    ) -> DataFrame:
        if more:
            return read_staged(self.spark, self.path, self._reading(more, columns, meta_columns), where)
        now = moment(self._whole.moment_of(self.path))
        options = self._reading(now, columns, meta_columns)
        frame = read_staged(self.spark, self.path, options, where, self._whole.staged_in(self.path))
        return self._whole.telling(frame, self.path)

    def _open(self) -> OpenedTable:
        staged = self._whole.staged_in(self.path)
        return super()._open() if staged is None else open_table(staged)

    def _write(
        self, frame: DataFrame | Callable[[], DataFrame], operation: str, options: Options | None, called: str = ""
    ) -> Any:
        rows = self._checked(frame)
        self._whole.run(self.path, partial(super()._write, rows, operation, options, called))

    def _checked(self, frame: DataFrame | Callable[[], DataFrame]) -> DataFrame | Callable[[], DataFrame]:
        if not callable(frame):
            self._whole.ensure_of_its_moment(frame)
            return frame

        def found() -> DataFrame:
            made = frame()
            self._whole.ensure_of_its_moment(made)
            return made

        return found


def _is_frame(data: object) -> bool:
    return hasattr(data, "sparkSession")


def _session_of(data: object) -> SparkSession | None:
    return getattr(data, "sparkSession", None)


def _is_column(data: object) -> bool:
    kinds = [kind.__module__ for kind in type(data).__mro__]
    return type(data).__name__ == "Column" and any(kind.startswith("pyspark.") for kind in kinds)
