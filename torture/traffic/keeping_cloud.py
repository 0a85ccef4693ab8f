"""As `keeping_storage`, for a table in an object store."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lakelatch.storage.cloud import CloudStorage, open_cloud_storage
from lakelatch.storage.contract import NotFound
from lakelatch.storage.options import StorageOptions
from lakelatch.torture.settings import Place
from lakelatch.torture.traffic.keeping_storage import keep


@dataclass(frozen=True)
class KeepingCloudStorage(CloudStorage):
    """A round's table. The content of a data file that is deleted lies in the folder `kept` from then on."""

    kept: str = ""

    def delete(self, path: str) -> None:
        if not path.startswith(".hoodie/"):
            with suppress(NotFound):
                keep(Path(self.kept) / path, self.read(path))
        super().delete(path)


def open_keeping(place: Place) -> KeepingCloudStorage:
    """The table of a round in an object store."""
    found = open_cloud_storage(place.uri, StorageOptions.from_options(place.place_options))
    return KeepingCloudStorage(found.place, found.settings, str(place.kept))
