"""The tables of a transaction over several of them as it has found them at its beginning, to which it is bound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakelatch.engine.several.cut import TableMoment, looks_at
from lakelatch.errors import InvalidRequest, LakelatchError, WriteConflict
from lakelatch.storage.contract import Storage
from lakelatch.storage.uris import without_secrets
from lakelatch.system import System
from lakelatch.timeline.history.same_table import ensure_same_table, ensure_there
from lakelatch.timeline.recorded_options import LOG_VERSION, PREPARING_LOG_VERSION
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.table_config import TableConfig


class FoundTables:
    """Configurations and timelines by path. Errors: `InvalidRequest` for a table that is not there, or may not take
    part."""

    def __init__(self, storages: Mapping[str, Storage], system: System) -> None:
        self._storages = storages
        self._found = looks_at(storages, system)
        for path, (config, _) in self._found.items():
            _ensure_may_take_part(path, config)

    def __getitem__(self, path: str) -> tuple[TableConfig, Snapshot]:
        return self._found[path]

    def names_of(self, path: str) -> frozenset[str]:
        """The names of a timeline's files."""
        return self._found[path][1].names

    def ensure_same(self, moments: Iterable[TableMoment]) -> None:
        """Errors: `WriteConflict` for the moment of another table in the place of one of these."""
        for one in moments:
            if one.mark is not None:
                ensure_same_table(self._storages[one.path], self.names_of(one.path), one.mark.names)

    def loss(self) -> LakelatchError | None:
        """That one of the tables is gone, or another one is in its place, which explains any other error; else None."""
        for path, storage in self._storages.items():
            try:
                ensure_there(storage)
                ensure_same_table(storage, self.names_of(path), Snapshot.look(storage).names)
            except (InvalidRequest, WriteConflict) as loss:
                return loss
            except LakelatchError:  # nobody can say so now; the error says more
                continue
        return None


def _ensure_may_take_part(path: str, config: TableConfig) -> None:
    if config.log_version < PREPARING_LOG_VERSION:
        raise InvalidRequest(
            f"the table at {without_secrets(path)} has {LOG_VERSION}={config.log_version}, and older writers may use "
            "it, which know no transactions over several tables: call `lakelatch upgrade` once they have ended",
            option=LOG_VERSION,
        )
