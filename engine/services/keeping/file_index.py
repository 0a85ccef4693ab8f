"""The file index, as a step: who commits makes one after about so many writes, where a table has many partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from zlib import crc32

from lakelatch.engine.run.report import DONE, ServiceRun
from lakelatch.engine.services.due import Standing
from lakelatch.engine.services.keeping.steps import Piece, Step, Work
from lakelatch.format.slices.index_making import make_index

_SERVICE = "index"


def _may_have_one(work: Work, standing: Standing) -> bool:
    """Not with Hudi's locks: others share the table then, whose commits nobody here can hold an index against."""
    every = work.options.inline.index_commits
    by_foreign = work.manager.context.provider.taken_by_hudi
    return bool(every and work.table.config.partition_fields and not by_foreign and len(standing.writes) >= every)


def _drawn(work: Work, standing: Standing) -> bool:
    """Whether it is this commit's turn: by a draw from its time, so that nobody has to be asked who did it last, and no
    rhythm of writes and services avoids it."""
    if not _may_have_one(work, standing):
        return False
    last = standing.writes[-1].completion or ""
    return crc32(last.encode()) % work.options.inline.index_commits == 0


def _pieces(least: Callable[[Work], int], work: Work, _: Standing) -> Iterator[Piece]:
    def act() -> ServiceRun | None:
        made = make_index(work.table.storage, work.table.config, least(work))
        if made is None:
            return None
        count, known = sum(map(len, made.files.values())), sum(map(len, made.statistics.files.values()))
        said = f"{count:,} files in {len(made.files):,} partitions, statistics of {known:,}"
        return ServiceRun(_SERVICE, DONE, "", said)

    yield "", act


#: After a commit: by a draw.
FILE_INDEX = Step(_SERVICE, _drawn, partial(_pieces, lambda work: 1))
#: In a maintenance: whenever the newest one is so old.
DUE_FILE_INDEX = replace(
    FILE_INDEX, is_due=_may_have_one, pieces=partial(_pieces, lambda work: work.options.inline.index_commits)
)
