"""A table inside a transaction over several tables, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from lakelatch.engine.arrow import ArrowTable
from lakelatch.engine.options.calls.arguments import Options, Time, merged, moment
from lakelatch.engine.options.write import OPERATION
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.several.refused_inside import RefusedInside
from lakelatch.engine.table.opening import open_table
from lakelatch.engine.table.table import OpenedTable
from lakelatch.system import System
from lakelatch.timeline.staged import StagedStorage


class Whole(Protocol):
    """The transaction, as each of its tables calls it."""

    def moment_of(self, path: str) -> str: ...
    def staged_in(self, path: str) -> StagedStorage | None: ...
    def change(self, path: str, data: Any, options: Options, write: Callable[[pa.Table], CommitResult]) -> None: ...
    def run(self, path: str, write: Callable[[], CommitResult | None]) -> None: ...


class ArrowTableInside(RefusedInside, ArrowTable):
    """It is read as of the transaction's moment, and its writes are parts.

    A window of `changes` ends at that moment as well, unless another end is named, and shows what others have
    committed, not what the transaction has staged.
    """

    def __init__(self, whole: Whole, path: str, options: Options, system: System) -> None:
        super().__init__(path, options, system)
        self._whole = whole

    def _window(self, after: Time, until: Time | None) -> Options:
        now = self._whole.moment_of(self.path)
        return super()._window(after, now if until is None else until)

    def _now(self) -> Options:
        return moment(self._whole.moment_of(self.path))

    def _staged(self) -> StagedStorage | None:
        return self._whole.staged_in(self.path)

    def _open(self) -> OpenedTable:
        staged = self._staged()
        return super()._open() if staged is None else open_table(staged)

    def _write(self, data: Any, operation: str, options: Options | None) -> Any:
        own = {**merged(self._options, options), OPERATION: operation}
        write = super()._write
        self._whole.change(self.path, data, own, lambda rows: write(rows, operation, options))

    def _change(self, *arguments: Any) -> Any:
        self._whole.run(self.path, partial(super()._change, *arguments))
