"""The options of locks in storage, `hoodie.write.lock.storage.*`, and the objects that they lead to."""

from __future__ import annotations

from dataclasses import replace

from lakelatch.errors import InvalidRequest
from lakelatch.locks.contract import LockScope
from lakelatch.locks.session.options import BackendOptions
from lakelatch.storage.cloud_client import AZURE, GCS, S3, CloudSettings
from lakelatch.storage.cloud_objects import CloudObjectStore
from lakelatch.storage.object_store import CheckedObjectStore, GuardedObjectStore, ObjectStore
from lakelatch.storage.options import StorageOptions
from lakelatch.storage.uris import open_storage, scheme_of, without_secrets
from lakelatch.system import System

_VALIDITY, _RENEWAL = "validity.timeout.secs", "renew.interval.secs"
#: Which stores take what is said of them; the others' clients look in the environment.
_TAKEN_BY = {
    **dict.fromkeys(("endpoint_url", "access_key_id", "secret_access_key", "allow_http"), (*S3, *AZURE)),
    "region": S3,
}
_KNOWN = frozenset({"url", _VALIDITY, _RENEWAL, *_TAKEN_BY})
_CALL_MOST_S = 5.0
_LOCAL = ("", "file", "memory")


def storage_options(scope: LockScope, default_lease_s: float, renewals: int) -> tuple[BackendOptions, float | None]:
    """The options, with the lease time that they mean, and the time between two renewals if it is not the usual one.

    `renewals` is how many there are in a lease time if no option says so; 0 leaves that to the session.
    """
    options = BackendOptions.of("storage", scope, _KNOWN, default_lease_s)
    _check_place(options, options.text("url") or scope.table_uri)
    if options.text(_VALIDITY) and scope.lock_options.lease_s is None:
        options = replace(options, lease_s=float(options.number(_VALIDITY, 0, 10, 3600)))
    if not options.text(_RENEWAL):
        return options, options.lease_s / renewals if renewals else None
    renew_s = float(options.number(_RENEWAL, 0, 1, 1200))
    if renew_s > options.lease_s / 3:
        raise options.refusal(
            _RENEWAL,
            f"={renew_s:g} is more than a third of the lease time, {options.lease_s:g} s: "
            f"lower it, or raise {options.key(_VALIDITY)}",
        )
    return options, renew_s


def open_objects(uri: str, options: BackendOptions, folder: str, system: System) -> ObjectStore:
    """The objects at a URI, with what guards or tries them below a folder; nothing is connected yet."""
    call_s, option = min(options.lease_s / 3, _CALL_MOST_S), options.key("url")
    if scheme_of(uri) in _LOCAL:
        return GuardedObjectStore(open_storage(uri), folder, call_s, option)
    place = StorageOptions(
        endpoint_url=options.text("endpoint_url"),
        region=options.text("region"),
        allow_http=options.flag("allow_http"),
        access_key_id=options.secret("access_key_id"),
        secret_access_key=options.secret("secret_access_key"),
    )
    settings = CloudSettings(place, call_s, options.key(""))
    identity = uri, folder, options.identity()
    return CheckedObjectStore(CloudObjectStore(uri, settings), folder, system, option, identity)


def _check_place(options: BackendOptions, uri: str) -> None:
    """Checks the options as far as that needs no connection."""
    scheme = scheme_of(uri)
    if scheme not in (*_LOCAL, *S3, *GCS, *AZURE):
        raise InvalidRequest(
            f"the lock provider 'storage' knows no {scheme}://, where {without_secrets(uri)} lies: set "
            f"{options.key('url')} to a place at s3://, gs://, az:// or file://",
            option=options.key("url"),
        )
    for name, schemes in _TAKEN_BY.items():
        if options.text(name) and scheme not in schemes:
            raise options.refusal(name, f" means nothing at {without_secrets(uri)}: remove it, and use the environment")
    if not options.flag("allow_http") and options.text("endpoint_url").lower().startswith("http:"):
        raise InvalidRequest(
            f"{options.key('endpoint_url')} has no TLS: use https://, or set {options.key('allow_http')}=true",
            option=options.key("allow_http"),
        )
