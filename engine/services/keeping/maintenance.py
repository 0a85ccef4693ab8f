"""One call that does whatever is due for a table, in the right order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from lakelatch.engine.options.services import ServiceOptions
from lakelatch.engine.run.executor import Executor
from lakelatch.engine.run.report import DONE, MaintenanceReport, ServiceRun
from lakelatch.engine.services.due import Standing
from lakelatch.engine.services.keeping.file_index import DUE_FILE_INDEX
from lakelatch.engine.services.keeping.steps import (
    ARCHIVE,
    CANCELLATIONS,
    CLEANS,
    COMPACTIONS,
    LOG_COMPACTIONS,
    Piece,
    Step,
    Work,
    clusterings,
    keep,
)
from lakelatch.engine.table.manager import open_manager
from lakelatch.engine.table.opening import require_writable
from lakelatch.storage.uris import open_storage
from lakelatch.system import REAL_SYSTEM, System


def maintain_with(
    executor: Executor,
    path: str,
    options: ServiceOptions,
    system: System = REAL_SYSTEM,
    tell: Callable[[ServiceRun], None] | None = None,
    go_on: Callable[[], bool] = lambda: True,
    steps: list[Step] | None = None,
) -> MaintenanceReport:
    """As `maintain`; `go_on` is asked before each piece.

    `steps` are all of them, unless others are given.
    """
    table = require_writable(open_storage(path, options.manager.storage)).with_base_files(options.base_files)
    with open_manager(table.storage, options.manager, system, config=table.config) as manager:
        work = Work(table, manager, options, executor)
        return MaintenanceReport(path, keep(work, steps_of(options) if steps is None else steps, None, tell, go_on))


def steps_of(options: ServiceOptions) -> list[Step]:
    """All steps of a maintenance, in order: what was begun before what is new, and what takes away last."""
    log_compaction = [LOG_COMPACTIONS.fresh()] if options.compaction.log_compaction else []
    planned_clusterings = clusterings(options.inline.clustering_commits)
    modes = options.inline.clustering
    wanted = bool(options.clustering.columns) or modes.run or modes.schedule or modes.beside
    return [
        RECOVER,
        replace(CANCELLATIONS, is_due=lambda work, standing: True),
        *(planned.waiting() for planned in (LOG_COMPACTIONS, COMPACTIONS, planned_clusterings, CLEANS)),
        COMPACTIONS.fresh(),
        *log_compaction,
        *([planned_clusterings.fresh()] if wanted else []),
        *([CLEANS.fresh()] if options.cleaning.automatic else []),
        *([ARCHIVE] if options.archiving.automatic else []),
        DUE_FILE_INDEX,
    ]


def _recover(work: Work, _: Standing) -> Iterator[Piece]:
    def act() -> ServiceRun | None:
        recovered = work.manager.recover()
        return ServiceRun("recover", DONE, "", f"rolled back {', '.join(recovered)}") if recovered else None

    yield "", act


RECOVER = Step("recover", lambda work, standing: True, _recover)
