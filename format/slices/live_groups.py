"""The file group of a bucket's rows: the live one, whichever engine named it; otherwise one with our file id.

A single Java writer gives the file group of a bucket a random id, and every Hudi writer uses the existing one. So must
ours: two live file groups of one bucket would show each key twice, and stop Java's writers.
"""

from __future__ import annotations

from collections.abc import Collection

from lakelatch.errors import InvalidRequest
from lakelatch.format.bucket_index import bucket_of_file_id
from lakelatch.format.file_groups import FileIds
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.names import parse_data_file
from lakelatch.format.slices.partitions import PARTITION_METADATA
from lakelatch.format.slices.table_view import TableView
from lakelatch.storage.contract import Storage
from lakelatch.timeline.properties_file import PROPERTIES_PATH
from lakelatch.timeline.table_config import TableConfig


class LiveGroups:
    """The file id of each bucket, for one writing process; used by one thread.

    Each partition is listed once, on first use, unless its names are `listed`; then they are. If all its files have the
    names given by `ours`, or are known to be replaced or of a cancelled plan, that is the only request; otherwise the
    timeline decides which of them are live.
    Later commits and rollbacks are not seen here: the commit checks for them.
    """

    def __init__(
        self, storage: Storage, config: TableConfig, ours: FileIds, listed: dict[str, Collection[str]] | None = None
    ) -> None:
        self._listed = {} if listed is None else listed
        self._storage = storage
        self._config = config
        self._ours = ours
        self._view: TableView | None = None
        self._found: dict[str, dict[int, str]] = {}
        self._marked: set[str] = set()

    def of(self, partition: str, bucket: int) -> str:
        """The file id under which a bucket's rows are written.

        Errors: `CorruptTable` for two live file groups of one bucket, `InvalidRequest` for those of another index.
        """
        if self._ours.of_one_replace:
            return self._ours.of(partition, bucket)
        if partition not in self._found:
            self._found[partition] = self._look(partition)
        return self._found[partition].get(bucket) or self._ours.of(partition, bucket)

    def is_marked(self, partition: str) -> bool:
        """Whether the file by which Java's readers find a partition is known to exist."""
        return partition in self._marked

    def successor_of(self, partition: str, file_id: str) -> str:
        """The current file id for the rows of this one. Errors: those of `of`."""
        bucket = bucket_of_file_id(file_id)
        return file_id if bucket is None else self.of(partition, bucket)

    def _look(self, partition: str) -> dict[int, str]:
        names = self._listed.get(partition)
        if names is None:
            names = self._listed[partition] = self._storage.names(partition)
        if PARTITION_METADATA in names:
            self._marked.add(partition)
        files = map(parse_data_file, names)
        file_ids = {file.file_id for file in files if file is not None and file.instant not in self._ours.cancelled}
        if all(self._is_known(partition, file_id) for file_id in file_ids):
            return {}
        if self._view is None:
            self._view = TableView.load(self._storage, self._config)
        live = [group[0].file_id for group in self._view.groups([partition])]
        return {self._bucket(partition, file_id): file_id for file_id in live}

    def _is_known(self, partition: str, file_id: str) -> bool:
        if (partition, file_id) in self._ours.replaced:
            return True
        bucket = bucket_of_file_id(file_id)
        return bucket is not None and bucket < self._count and self._ours.of(partition, bucket) == file_id

    def _bucket(self, partition: str, file_id: str) -> int:
        bucket = bucket_of_file_id(file_id)
        if bucket is None or bucket >= self._count:
            raise InvalidRequest(
                f"the table {self._config.name!r} has {self._count} buckets, and the file group {file_id} in its "
                f"partition {partition!r} belongs to none of them: it was written with another index or another number "
                f"of buckets, and keys in it would be written twice. Correct hoodie.bucket.index.num.buckets in "
                f"{PROPERTIES_PATH}, or write to a new table"
            )
        return bucket

    @property
    def _count(self) -> int:
        return self._config.bucket_count or 1


class LiveSlices(LiveGroups):
    """The latest slice of each bucket at the moment of a view, with which a write merges its rows.

    Writes completed since are not in it. The write's base file would hide them, so its commit has to check for all
    writes that the view does not have.
    """

    def __init__(self, view: TableView, ours: FileIds) -> None:
        super().__init__(view.storage, view.config, ours)
        self._view = view
        self._slices: dict[str, dict[int, FileSlice]] = {}

    def of(self, partition: str, bucket: int) -> str:
        return self.slice_of(partition, bucket).file_id

    def slice_of(self, partition: str, bucket: int) -> FileSlice:
        """The slice, or an empty one under the file id for the bucket's first rows. Errors: those of `of`."""
        if partition not in self._slices and not self._ours.of_one_replace:
            assert self._view is not None
            latest = (group[0] for group in self._view.groups([partition]))
            self._slices[partition] = {self._bucket(partition, found.file_id): found for found in latest}
        found = self._slices.get(partition, {}).get(bucket)
        return found or FileSlice(partition, self._ours.of(partition, bucket), "", None, ())
