"""A storage that keeps removed data files for the checker, as cleaned files once had rows."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from lakelatch.storage.contract import Storage
from lakelatch.storage.local import LocalStorage
from lakelatch.torture.settings import Place


class KeepingStorage(LocalStorage):
    """A round's table. The content of a data file that is deleted lies in the round's folder from then on."""

    def delete(self, path: str) -> None:
        if not path.startswith(".hoodie/"):
            with suppress(FileNotFoundError):
                root = Path(self.root)
                keep(root.with_name(root.name.replace("table", "kept", 1)) / path, (root / path).read_bytes())
        super().delete(path)


def keep(kept: Path, data: bytes) -> None:
    """Puts a removed file's content where the checker looks for it."""
    if data:  # a tombstone is empty
        kept.parent.mkdir(parents=True, exist_ok=True)
        whole = kept.with_name(f"{kept.name}.{os.getpid()}")
        whole.write_bytes(data)
        whole.replace(kept)


def storage_at(place: Place) -> Storage:
    """The table of a round."""
    if not place.uri:
        return KeepingStorage(str(place.table))
    from lakelatch.torture.traffic.keeping_cloud import open_keeping  # only such rounds need the store's client

    return open_keeping(place)


def bring_table(place: Place) -> None:
    """Copies a table that lies in an object store into the round's folder, for the checker."""
    storage = storage_at(place)
    for path in storage.walk(""):
        file = place.table / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(storage.read(path))
