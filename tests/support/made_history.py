"""A table whose files hold no rows: writes, compactions, overwrites and savepoints of any order, in little time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

import pyarrow as pa
from bare_table import add_log, commit, manager_of

from lakelatch.engine.options.table_services.cleaning import CleaningOptions
from lakelatch.engine.services.removals import cleaning
from lakelatch.engine.services.removals.cleaning import Clean, CleanResult
from lakelatch.engine.services.service import ServiceContext
from lakelatch.engine.table.table import OpenedTable
from lakelatch.format.file_slices import FileSlice, file_slices
from lakelatch.format.names import BaseFile
from lakelatch.format.slices.partitions import partition_files
from lakelatch.format.slices.table_view import TableView
from lakelatch.storage import MemoryStorage
from lakelatch.storage.checksums import add_checksum
from lakelatch.storage.contract import Storage, path_below
from lakelatch.testing.clock import ManualSystem
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timeline.actions import CLEAN, COMPACTION, REPLACE_COMMIT, WRITE_ACTIONS
from lakelatch.timeline.instant import completed, inflight, requested
from lakelatch.timeline.metadata import CommitMetadata, CompactionOperation, CompactionPlan, FileGroup, WriteStat
from lakelatch.timeline.plans.clean_plan import CleanPlan
from lakelatch.timeline.plans.policy import PlanPolicy
from lakelatch.timeline.properties_file import PROPERTIES_PATH
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.table_config import TableConfig
from lakelatch.transactions.base.settings import NON_BLOCKING
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.transaction import Transaction

Begun = tuple[Transaction, list[WriteStat]]
_numbers = count()


def group(bucket: int, generation: int = 0) -> str:
    return f"{bucket:08d}-0000-0000-0000-{generation:012d}-0"


@dataclass
class MadeHistory:
    """One table in memory. `storage` may be replaced by one with faults before a manager is made."""

    system: ManualSystem = field(default_factory=ManualSystem)
    config: TableConfig = field(
        default_factory=lambda: TableConfig("made", ("id",), ("part",), bucket_count=4, hash_fields=("id",))
    )

    def __post_init__(self) -> None:
        self.memory = MemoryStorage(f"made-{next(_numbers)}", self.system)
        self.storage: Storage = self.memory
        self.storage.put(PROPERTIES_PATH, self.config.to_properties())
        self.one = self.manager()

    def manager(self) -> TransactionManager:
        """As another process would open it."""
        return manager_of(self.storage, system=self.system, mode=NON_BLOCKING)

    def watch_listings(self) -> list[str]:
        """Folders that are listed from now on."""
        listed: list[str] = []

        def before(operation: str, path: str) -> None:
            if operation == "list":
                listed.append(path)

        self.storage = FaultyStorage(self.memory, before=before)
        return listed

    # -- writes -------------------------------------------------------------------------------------------------------

    def begin(self, groups: Iterable[FileGroup], action: str = "deltacommit") -> Begun:
        transaction = self.one.begin(action)
        return transaction, [add_log(transaction, file_id, partition) for partition, file_id in groups]

    def commit(self, begun: Begun) -> str:
        """Returns the completion time."""
        transaction, stats = begun
        return commit(transaction, *stats).completion

    def write(self, *groups: FileGroup) -> str:
        return self.commit(self.begin(groups))

    def overwrite(self, old: Sequence[FileGroup], new: Sequence[FileGroup] = ()) -> str:
        transaction, stats = self.begin(new, REPLACE_COMMIT)
        gone: dict[str, tuple[str, ...]] = {}
        for partition, file_id in old:
            gone[partition] = (*gone.get(partition, ()), file_id)
        metadata = CommitMetadata(tuple(stats), "INSERT_OVERWRITE", replaced=gone)
        return transaction.commit(metadata).completion

    def plan_compaction(self, *groups: FileGroup, policy: PlanPolicy | None = None) -> str | None:
        """Of these file groups, as their latest slices are."""

        def build(_: Snapshot) -> bytes | None:
            found = [one for one in self.view().slices() if (one.partition, one.file_id) in groups and one.log_files]
            operations = tuple(
                CompactionOperation(one.partition, one.file_id, one.base_instant, one.base_file, one.log_files)
                for one in found
            )
            return CompactionPlan(operations, (policy or PlanPolicy()).to_extra()).to_avro() if operations else None

        return self.one.schedule(build, COMPACTION)

    def compact(self, plan: str) -> str:
        transaction = self.one.execute(plan, COMPACTION)
        stats = []
        for operation in CompactionPlan.read(self.storage, requested(plan, COMPACTION).path).operations:
            path = path_below(operation.partition, BaseFile(operation.file_id, "0-0-0", plan).name)
            self.storage.put_if_absent(path, add_checksum(b"rows", path))
            stats.append(WriteStat(operation.partition, operation.file_id, path, file_size_bytes=4))
        return transaction.commit(CommitMetadata(tuple(stats), "COMPACT", compacted=True)).completion

    def compact_now(self, *groups: FileGroup) -> str:
        plan = self.plan_compaction(*groups)
        assert plan is not None
        return self.compact(plan)

    # -- cleans -------------------------------------------------------------------------------------------------------

    def context(self, manager: TransactionManager | None = None) -> ServiceContext:
        """What a clean works with, in a process of its own."""
        return ServiceContext(OpenedTable(self.storage, self.config, pa.schema([])), manager or self.manager())

    def clean(self, options: CleaningOptions, manager: TransactionManager | None = None) -> list[CleanResult]:
        return Clean(options).run(self.context(manager))

    def preview(self, options: CleaningOptions) -> CleanPlan | None:
        return cleaning.preview(self.storage, self.config, options)

    def cleans(self) -> list[str]:
        """Requested times of the completed ones."""
        return [one.requested for one in Snapshot.load(self.storage).completed if one.action == CLEAN]

    def place_completed(self, instant: str, action: str, content: bytes) -> None:
        """As a Java writer leaves it: in no slot."""
        self.storage.put(requested(instant, action).path, b"")
        self.storage.put(inflight(instant, action).path, b"")
        self.storage.put(completed(instant, action, instant).path, content)

    # -- looks --------------------------------------------------------------------------------------------------------

    def view(self, as_of: str | None = None) -> TableView:
        return TableView.load(self.storage, self.config, as_of)

    def slices(self, as_of: str | None = None) -> list[FileSlice]:
        """What a reader of a moment reads; `InvalidRequest` if it is not there any more."""
        view = self.view(as_of)
        found = view.slices()
        view.ensure_there(found)
        return found

    def files(self) -> set[str]:
        """Paths of the data files."""
        return {
            path_below(partition, name)
            for partition, names in partition_files(self.storage, self.config)
            for name in names
        }

    def completions(self) -> list[str]:
        """Completion times of the writes, in order."""
        timeline = Snapshot.load(self.storage)
        return sorted(one.completion or "" for one in timeline.completed if one.action in WRITE_ACTIONS)

    def needed_since(self, moment: str) -> set[str]:
        """Files that readers read who began at some time from this moment on: an oracle, by slices of each moment."""
        moments = [moment, *(one for one in self.completions() if one > moment)]
        return {path for one in moments for path in self.needed_at(one)}

    def needed_at(self, moment: str) -> set[str]:
        times = Snapshot.load(self.storage).completion_times()
        replaced = {key: time for key, time in self.view().replaced().items() if time <= moment}
        found: set[str] = set()
        for partition, names in partition_files(self.storage, self.config):
            gone = {file_id: time for (inside, file_id), time in replaced.items() if inside == partition}
            for slices in file_slices(partition, names, times, as_of=moment):
                latest = slices[0]
                if latest.file_id not in gone:
                    found.update(latest.log_paths, [latest.base_path] if latest.base_path else [])
        return found
