"""Compaction plans of ours that another engine carries out.

Its part is played with the bytes that it writes: a base file under a token of its own, and a commit without our
writer's name. `tests/java` has the real one.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from live_table import LiveTable

from lakelatch.failpoints import calling
from lakelatch.format.names import BASE_TOKEN, BaseFile, parse_data_file, token_within
from lakelatch.timegen.instant_time import to_instant, to_ms
from lakelatch.timeline.actions import COMPACTION
from lakelatch.timeline.instant import completed, inflight, requested
from lakelatch.timeline.metadata import CommitMetadata, CompactionPlan, WriteStat

OTHER_TOKEN = "0-31-77"
OUR_TOKEN = token_within("p", BASE_TOKEN)


class Died(Exception):
    """An executor that is no more."""


def die() -> None:
    raise Died


def base_of(table: LiveTable) -> Path:
    (path,) = (table.root / "p").glob(f"*_{OUR_TOKEN}_*.parquet")
    return path


def others_base(path: Path, data: bytes | None = None) -> Path:
    other = path.with_name(path.name.replace(f"_{OUR_TOKEN}_", f"_{OTHER_TOKEN}_"))
    if data is None:
        pq.write_table(pq.read_table(path).replace_schema_metadata(None), other)  # no checksum of ours
    else:
        other.write_bytes(data)
    return other


def complete_as_another(table: LiveTable, plan: str, *bases: Path) -> None:
    """As an engine that takes no claim: its own inflight file, and a commit that names its own base files."""
    path = inflight(plan, COMPACTION).path
    if not table.storage.exists(path):
        table.storage.put(path, b"")
    stats = tuple(
        WriteStat("p", found.file_id, f"p/{base.name}", num_writes=2, file_size_bytes=base.stat().st_size)
        for base in bases
        if isinstance(found := parse_data_file(base.name), BaseFile)
    )
    extra = {"schema": table.opened.avro_schema}
    commit = completed(plan, COMPACTION, to_instant(to_ms(plan) + 5000))
    table.storage.put(commit.path, CommitMetadata(stats, "COMPACT", extra, compacted=True).to_avro())


def compacted_by_another(table: LiveTable) -> CompactionPlan:
    """A plan of ours that the other engine has carried out from the beginning: no file of ours is left."""
    plan = table.plan()
    assert plan is not None
    with calling(lambda _: die(), ["compact.before_commit"]), pytest.raises(Died):
        table.execute(plan)
    ours = list((table.root / "p").glob(f"*_{OUR_TOKEN}_{plan}.parquet"))
    complete_as_another(table, plan, *(others_base(base) for base in ours))
    for path in (*ours, *(table.root / "p").glob(f".*_{plan}.log.*")):
        path.unlink()
    return CompactionPlan.read(table.storage, requested(plan, COMPACTION).path)
