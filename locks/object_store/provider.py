"""Locks in the storage where the tables lie, by conditional puts: S3, GCS, Azure, and files of one machine."""

from __future__ import annotations

import threading
from collections.abc import Hashable

from lakelatch.locks.contract import IN_TABLE, LockScope
from lakelatch.locks.hudi.java_lock import JavaLock
from lakelatch.locks.hudi.provider import SharedTableKey
from lakelatch.locks.hudi.shared_keys import SharedKeysBackend
from lakelatch.locks.object_store.hudi_object import HudiTableObject
from lakelatch.locks.object_store.options import open_objects, storage_options
from lakelatch.locks.object_store.records import ObjectRecords
from lakelatch.locks.options import DEFAULT_LEASE_S, PROVIDER, keys_of
from lakelatch.locks.records.backend import RecordBackend
from lakelatch.locks.session.backend import SessionBackend
from lakelatch.locks.session.provider import SessionLockProvider

DEFAULT_FOLDER = ".hoodie/.lakelatch/lock_records"

_HUDI = "hudi:"
_HUDI_LEASE_S, _HUDI_RENEWALS = 300, 10


class StorageLockProvider(SessionLockProvider):
    """Leases as small objects below `.hoodie/.lakelatch/lock_records/` of the table, or at `url`.

    There are no notifications: who waits looks again, the next one often and the others rarely.

    Keys below `hoodie.write.lock.storage.`:
    `url` (`s3://`, `gs://`, `az://`, `file://`, or a path), `endpoint_url`, `region`, `allow_http`, `access_key_id` and
    `secret_access_key` for S3; what is not given is taken from the environment, as obstore does it. Hudi's
    `validity.timeout.secs` is the lease time, and `renew.interval.secs` how often it is renewed.

    The store has to keep its conditions (`If-Match`, `If-None-Match: *`), which is tried out before the first lease.
    The records of local tables are guarded by kernel locks, so that all writers have to be on one machine then.
    """

    not_secret = keys_of("storage", "url", "endpoint_url", "region", "allow_http")
    _default_lease_s: float = DEFAULT_LEASE_S
    _renewals = 0

    def __init__(self, scope: LockScope) -> None:
        super().__init__(scope)
        self._options, self._renew_s = storage_options(scope, self._default_lease_s, self._renewals)
        self._url = self._options.text("url")

    @property
    def identity(self) -> Hashable:
        return self._options.identity(), self._renew_s, "" if self._url else self.scope.table_uri

    def record(self) -> dict[str, str]:
        """Records in the table itself are reached as the table is, which each writer says for itself."""
        found = super().record()
        return found if self._url else {PROVIDER: found[PROVIDER]}

    def ask(self) -> None:
        """Records in the table itself are where the table is, which has been asked."""
        if self._url:
            super().ask()

    def lock_id(self, proposed: str = "") -> str | None:
        return super().lock_id(proposed) if self._url else IN_TABLE

    def make_backend(self) -> SessionBackend:
        return RecordBackend(self._records(), self.scope.system, self._options.lease_s, self._renew_s)

    def _records(self) -> ObjectRecords:
        folder = "" if self._url else DEFAULT_FOLDER
        objects = open_objects(self._url or self.scope.table_uri, self._options, folder, self.scope.system)
        return ObjectRecords(objects, folder, self.scope.system)


class HudiStorageLockProvider(SharedTableKey, StorageLockProvider):
    """The provider of Hudi's class name: the table's key is the lock that Hudi's Java writers take.

    It is the object `.hoodie/.locks/table_lock.json` of the table, by Hudi's rules, which compare wall clocks: those of
    all writers must agree within half a second. What Java writers have no lock for lies where `StorageLockProvider` has
    it. The lease time is 300 s and renewed ten times in it, as in Hudi, unless said otherwise.

    A Java writer does not hear of `break_`: its lock is expired all the same, when its time is over.
    """

    _default_lease_s: float = _HUDI_LEASE_S
    _renewals = _HUDI_RENEWALS

    def make_backend(self) -> SessionBackend:
        options, system, lease_s = self._options, self.scope.system, self._options.lease_s

        def find(name: str) -> JavaLock | None:
            if not name.startswith(_HUDI):
                return None
            with guard:
                if name not in places:
                    objects = open_objects(name[len(_HUDI) :], options, DEFAULT_FOLDER, system)
                    places[name] = HudiTableObject(objects, lease_s, system)
                return places[name]

        guard = threading.Lock()
        places: dict[str, JavaLock] = {}
        return SharedKeysBackend(self._records(), system, lease_s, find, self._renew_s)

    @property
    def table_lock(self) -> str:
        return _HUDI + self.scope.table_uri
