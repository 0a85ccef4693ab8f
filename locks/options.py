"""The lock options: Hudi's keys, checked once."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from lakelatch.errors import InvalidRequest
from lakelatch.option_values import Option, Parse, ParsedOptions, option, whole
from lakelatch.storage.options import KNOWN_STORAGE_KEYS, TIMEOUT_S
from lakelatch.storage.options import PREFIX as STORAGE_PREFIX
from lakelatch.storage.uris import scheme_of

PREFIX = "hoodie.write.lock."
PROVIDER = PREFIX + "provider"
WAIT_TIME = PREFIX + "wait_time_ms"
FILESYSTEM_PATH = PREFIX + "filesystem.path"
IN_PROCESS_LEASE = "lakelatch.lock.in_process.lease_s"
LEASE = "lakelatch.lock.lease_s"

TABLE_NAME, BASE_PATH = "hoodie.table.name", "hoodie.base.path"  # by which Hudi's locks are called
DEFAULT_PROVIDER = "filesystem"
STORAGE_URL = PREFIX + "storage.url"
_LOCAL = ("", "file", "memory")
_FOR_LOCKS = KNOWN_STORAGE_KEYS - {TIMEOUT_S}
_DAY_MS = 86_400_000
WITHOUT_EFFECT = {  # accepted, so that Hudi's configurations can be pasted, with the greatest value of each
    f"{PREFIX}client.num_retries": 1_000_000,
    f"{PREFIX}client.wait_time_ms_between_retry": _DAY_MS,
    f"{PREFIX}num_retries": 1_000_000,
    f"{PREFIX}wait_time_ms_between_retry": _DAY_MS,
    f"{PREFIX}max_wait_time_ms_between_retry": _DAY_MS,
    f"{PREFIX}filesystem.expire": 10_000_000,
}

LEASE_LEAST_S, LEASE_MOST_S = 1.0, 3600.0
DEFAULT_LEASE_S = 15.0
_PROVIDER_KEY = re.compile(re.escape(PREFIX) + r"([a-z0-9_]+)\..+")
_OUR_GROUPS = ("client", "filesystem", "conflict")  # their keys are all known, so any other is misspelt


def with_place(table_uri: str, options: Mapping[str, str]) -> Mapping[str, str]:
    """The options of a table's locks, with what follows from where the table lies.

    A table at an object store has its locks there, if no option names other ones, and reaches them as it is reached
    itself. A local table's are the kernel's.
    """
    if scheme_of(table_uri) in _LOCAL:
        return options
    more = (
        {}
        if STORAGE_URL in options
        else {
            f"{PREFIX}storage.{key.removeprefix(STORAGE_PREFIX)}": options[key] for key in _FOR_LOCKS if key in options
        }
    )
    return {PROVIDER: "storage", **more, **options}


def keys_of(provider: str, *names: str) -> frozenset[str]:
    """The whole keys of a provider's options."""
    return frozenset(f"{PREFIX}{provider}.{name}" for name in names)


def is_provider_key(key: str) -> bool:
    """Whether an option belongs to a provider of its own (`hoodie.write.lock.<provider>.`), which checks it itself."""
    match = _PROVIDER_KEY.fullmatch(key)
    return match is not None and match.group(1) not in _OUR_GROUPS


def _text(key: str, text: str) -> str:
    if not text.strip():
        raise InvalidRequest(f"{key}={text!r} is empty: give it a value, or remove it", option=key)
    return text.strip()


def _lease_s(least_s: float = LEASE_LEAST_S) -> Parse[float]:
    """A lease time in seconds."""

    def parse(key: str, text: str) -> float:
        text = text.strip()
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least_s <= value <= LEASE_MOST_S:
            raise InvalidRequest(
                f"{key}={text!r} is no lease time: use {least_s:g} to {LEASE_MOST_S:g} seconds, or remove it",
                option=key,
            )
        return value

    return parse


@dataclass(frozen=True)
class LockOptions(ParsedOptions):
    """How locks are taken, as far as all providers have it in common.

    `wait_time_ms` is the whole time that a caller waits for a key. Hudi waits that long again and again
    (`client.num_retries` times), since its providers lose their place in the queue between tries.
    `lease_s` is `lakelatch.lock.lease_s`: a process that does not renew its session with a lock service for so long
    counts as dead (the providers' default, mostly 15, if it is None).
    """

    also = tuple(Option(key, whole(0, most), None) for key, most in WITHOUT_EFFECT.items())
    provider: str = option(PROVIDER, _text, DEFAULT_PROVIDER)
    wait_time_ms: int = option(WAIT_TIME, whole(0, 7 * _DAY_MS), 60_000)
    filesystem_path: str | None = option(FILESYSTEM_PATH, _text)
    in_process_lease_s: float | None = option(IN_PROCESS_LEASE, _lease_s(0.05))
    lease_s: float | None = option(LEASE, _lease_s())

    @property
    def timeout_s(self) -> float:
        """`wait_time_ms` in seconds, as `LockProvider.acquire` takes it."""
        return self.wait_time_ms / 1000


KNOWN_LOCK_KEYS = frozenset(one.key for one in LockOptions.options())
