"""Objects at S3, GCS and Azure, by obstore."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import obstore

from lakelatch.errors import InvalidRequest
from lakelatch.storage.cloud_client import CloudClient, CloudSettings
from lakelatch.storage.object_store import ObjectStore, VersionedObject


class CloudObjectStore(ObjectStore):
    """The objects below a URI (`s3://bucket/prefix`); nothing is connected before the first call."""

    def __init__(self, uri: str, settings: CloudSettings) -> None:
        self._client = CloudClient(uri, settings)
        self.where = self._client.where

    def get(self, path: str) -> VersionedObject:
        with self._client.reading(path) as store:
            found = obstore.get(store, path)
            modified_ms = int(found.meta["last_modified"].timestamp() * 1000)
            return VersionedObject(bytes(found.bytes()), _version(found.meta), modified_ms)

    def put_if_absent(self, path: str, data: bytes) -> str | None:
        return _version_or_none(self._client.put(path, data, "create"))

    def replace(self, path: str, data: bytes, version: str) -> str | None:
        tag, _, number = version.partition(" ")
        mode = {"e_tag": tag, **({"version": number} if number else {})}
        return _version_or_none(self._client.put(path, data, mode))

    def delete(self, path: str) -> None:
        with self._client.asking(path) as store, suppress(FileNotFoundError):
            obstore.delete(store, path)

    def paths(self, folder: str) -> list[str]:
        with self._client.asking(folder) as store:
            return [str(found["path"]) for some in obstore.list(store, folder) for found in some]

    def close(self) -> None:
        self._client.close()


def _version_or_none(found: Any | None) -> str | None:
    return None if found is None else _version(found)


def _version(found: Any) -> str:
    """Entity tag and version, as the store gives them; a store that gives neither cannot be used."""
    tag, version = found.get("e_tag"), found.get("version")
    if tag is None and version is None:
        raise InvalidRequest("this object store gives objects no versions, so that nothing can be put conditionally")
    return f"{tag or ''} {version}" if version else str(tag)
