"""Finds components by name among the installed entry points, and opens the lock provider that the options name."""

from __future__ import annotations

import difflib
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from lakelatch.errors import InvalidRequest
from lakelatch.locks.contract import LockProvider, LockScope
from lakelatch.locks.options import KEEPER, PROVIDER, LockOptions
from lakelatch.locks.session_provider import SessionLockProvider

LOCK_PROVIDERS = "lakelatch.lock_providers"

_HUDI_LOCKS = "org.apache.hudi.client.transaction.lock."
_HUDI_AWS_LOCKS = "org.apache.hudi.aws.transaction.lock."
_EXTRAS = {  # the extra that brings a provider's client
    "zookeeper": "zookeeper",
    _HUDI_LOCKS + "ZookeeperBasedLockProvider": "zookeeper",
    _HUDI_LOCKS + "ZookeeperBasedImplicitBasePathLockProvider": "zookeeper",
    "redis": "redis",
    "etcd": "etcd",
    "dynamodb": "dynamodb",
    _HUDI_AWS_LOCKS + "DynamoDBBasedLockProvider": "dynamodb",
    _HUDI_AWS_LOCKS + "DynamoDBBasedImplicitPartitionKeyLockProvider": "dynamodb",
    "storage": "s3",
    _HUDI_LOCKS + "StorageBasedLockProvider": "s3",
}


@lru_cache(maxsize=256)  # reading the entry points of a large environment takes milliseconds
def find_component(group: str, name: str, what: str, option: str) -> Any:
    """Loads the object that is registered under this name in an entry-point group.

    A short name matches in any case, a class name (with dots) only as it is. `what` says what is looked for, and
    `option` where the user chose the name; both are for the messages.

    Errors: `InvalidRequest` if the name is not installed, is claimed by two packages, or cannot be imported.
    """
    installed = entry_points(group=group)
    exact = [point for point in installed if point.name == name]
    loose = [point for point in installed if "." not in name and point.name.lower() == name.lower()]
    points = {point.value: point for point in exact or loose}
    if not points:
        raise InvalidRequest(_unknown(sorted({point.name for point in installed}), name, what, option), option=option)
    if len(points) > 1:
        raise InvalidRequest(
            f"{option}={name!r} is claimed by {' and '.join(sorted(points))}: uninstall one of the packages, or use "
            f"another name of the {what} that you want",
            option=option,
        )
    return _load(next(iter(points.values())), name, what, option)


def _load(point: EntryPoint, name: str, what: str, option: str) -> Any:
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        extra = _EXTRAS.get(name) or _EXTRAS.get(name.lower())
        way_out = f"run pip install 'lakelatch[{extra}]'" if extra else "install what it needs, or choose another one"
        raise InvalidRequest(
            f"{option}={name!r}: the {what} {point.value} cannot be loaded ({error}); {way_out}", option=option
        ) from error


def _unknown(names: list[str], name: str, what: str, option: str) -> str:
    by_lower = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1)
    guess = f" Did you mean {by_lower[near[0]]!r}?" if near else ""
    shown = ", ".join(names) if names else "none; install lakelatch itself, as with pip install lakelatch"
    return f"{option}={name!r} is no known {what}.{guess} Installed: {shown}"


def open_lock_provider(scope: LockScope) -> LockProvider:
    """Constructs the provider that `hoodie.write.lock.provider` names, by short name or Hudi class name.

    Nothing is connected yet. The caller closes it.

    Errors: `InvalidRequest`, with the nearest known name and what is installed.
    """
    options = LockOptions.from_options(scope.options)
    name = options.provider
    kind = find_component(LOCK_PROVIDERS, name, "lock provider", PROVIDER)
    provider = kind(scope)
    if not isinstance(provider, LockProvider):
        raise InvalidRequest(
            f"{PROVIDER}={name!r} made a {type(provider).__name__}, which is no LockProvider: choose another one",
            option=PROVIDER,
        )
    if options.keeper and not isinstance(provider, SessionLockProvider):
        raise InvalidRequest(
            f"{KEEPER}=true: the lock provider {name!r} has no session that a keeper could renew; leave the option out",
            option=KEEPER,
        )
    return provider
