"""Files that somebody has removed: no service makes the loss permanent, and each names the file."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from live_table import LiveTable
from taken_back_table import new_table, rows

from lakelatch.engine.options.table_services.archiving import ArchivingOptions
from lakelatch.engine.options.table_services.cleaning import CleaningOptions
from lakelatch.errors import CorruptTable
from lakelatch.timeline.actions import COMPACTION
from lakelatch.timeline.snapshot import Snapshot

NOW = ".hoodie/.lakelatch/now"  # by which a process asks for the storage's clock
ARCHIVING = ArchivingOptions(min_commits=2, max_commits=3, minimum_age_s=0)


def cleaned(table: LiveTable) -> object:
    return table.clean(CleaningOptions(commits=1))


def archived(table: LiveTable) -> object:
    return table.archive(ARCHIVING)


def compacted(table: LiveTable) -> object:
    """As `compact` does it: plans that wait come first."""
    for one in Snapshot.load(table.storage).pending:
        if one.action == COMPACTION:
            table.execute(one.requested)
    return table.compact()


def logs_compacted(table: LiveTable) -> object:
    return table.compact_logs()


SERVICES: dict[str, Callable[[LiveTable], object]] = {
    "compaction": compacted,
    "log compaction": logs_compacted,
    "clustering": LiveTable.cluster,
    "clean": cleaned,
    "archive": archived,
}


def run(table: LiveTable, service: str) -> object:
    """As everybody runs it."""
    table.manager().recover()
    return SERVICES[service](table)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with older slices, which a clean may remove, and with logs above the latest base files."""
    table = new_table(tmp_path_factory.mktemp("missing"))
    for number in range(3):
        table.write(rows(4, number, f"{number}-"))
        table.compact()
    table.write(rows(3, 8, "late"))
    table.write(rows(2, 9, "last"))
    return table.root


@pytest.fixture
def table(made: Path, tmp_path: Path) -> LiveTable:
    """A copy of it, of which this process knows nothing."""
    shutil.copytree(made, tmp_path / "table")
    return new_table(tmp_path)


def latest_log(table: LiveTable) -> Path:
    return max(table.root.glob("p/.*.log.*"))


def latest_base(table: LiveTable) -> Path:
    return max(table.root.glob("p/*.parquet"), key=lambda path: path.stem.rpartition("_")[2])


def completed(table: LiveTable, action: str) -> Path:
    return sorted(table.root.glob(f".hoodie/timeline/*_*.{action}"))[-2]


FILES: dict[str, Callable[[LiveTable], Path]] = {
    "log": latest_log,
    "base": latest_base,
    "delta commit": lambda table: completed(table, "deltacommit"),
    "compaction's commit": lambda table: completed(table, "commit"),
}


NOTHING_TO_DO = {("compaction's commit", "log compaction"), ("compaction's commit", "clustering")}  # its plan waits


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("file", FILES)
def test_a_service_refuses_to_go_on_without_a_file_that_is_missing(table: LiveTable, file: str, service: str) -> None:
    before, path = table.agreed(), FILES[file](table)
    content = path.read_bytes()
    path.unlink()
    for _ in range(2):
        if (file, service) in NOTHING_TO_DO:
            assert run(table, service) is None
            continue
        with pytest.raises(CorruptTable, match=path.name.replace(".", r"\.")):
            run(table, service)
    path.write_bytes(content)
    assert run(table, service) is not None
    assert table.agreed() == before


@pytest.mark.parametrize("plan", [LiveTable.plan, LiveTable.plan_clustering], ids=["compaction", "clustering"])
@pytest.mark.parametrize("file", [latest_log, latest_base], ids=["log", "base"])
def test_a_plan_that_waits_is_not_carried_out_without_its_files(
    table: LiveTable, plan: Callable[[LiveTable], str], file: Callable[[LiveTable], Path]
) -> None:
    before, planned, path = table.agreed(), plan(table), file(table)
    content = path.read_bytes()
    path.unlink()
    execute = table.execute if plan is LiveTable.plan else table.execute_clustering
    with pytest.raises(CorruptTable, match=path.name.replace(".", r"\.")):
        execute(planned)
    path.write_bytes(content)
    execute(planned)
    assert table.agreed() == before


def test_of_a_plan_that_waits_only_files_that_somebody_reads_are_missed(tmp_path: Path) -> None:
    """Those of a partition that was dropped since may be gone, and nobody is to put them back."""
    table = new_table(tmp_path)
    for partition in "pq":
        table.write(rows(2, 1, partition), partition)
    planned = table.plan()
    assert planned is not None
    dropped, needed = (max(table.root.glob(f"{partition}/.*.log.*")) for partition in "pq")
    table.drop("p")
    dropped.unlink()
    content = needed.read_bytes()
    needed.unlink()
    with pytest.raises(CorruptTable) as caught:
        table.execute(planned)
    assert caught.value.details["path"] == f"q/{needed.name}"
    needed.write_bytes(content)
    table.execute(planned)
    assert len(table.agreed()) == 2


def test_a_completed_file_that_is_missing_is_not_taken_for_a_write_that_died(table: LiveTable) -> None:
    path = completed(table, "deltacommit")
    before, content, files = (
        table.agreed(),
        path.read_bytes(),
        sorted(one for one in table.storage.walk("") if one != NOW),
    )
    path.unlink()
    with pytest.raises(CorruptTable, match=path.name.replace(".", r"\.")):
        table.manager().recover()
    path.write_bytes(content)
    assert sorted(found for found in table.storage.walk("") if found != NOW) == files
    assert table.agreed() == before
    assert not Snapshot.load(table.storage).pending
