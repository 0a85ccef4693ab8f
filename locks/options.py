"""The lock options: Hudi's keys, checked once."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from lakelatch.errors import InvalidRequest
from lakelatch.option_values import flag, whole_number

PREFIX = "hoodie.write.lock."
PROVIDER = PREFIX + "provider"
WAIT_TIME = PREFIX + "wait_time_ms"
CLIENT_RETRIES = PREFIX + "client.num_retries"
CLIENT_RETRY_WAIT = PREFIX + "client.wait_time_ms_between_retry"
RETRIES = PREFIX + "num_retries"
RETRY_WAIT = PREFIX + "wait_time_ms_between_retry"
RETRY_WAIT_MAX = PREFIX + "max_wait_time_ms_between_retry"
FILESYSTEM_PATH = PREFIX + "filesystem.path"
FILESYSTEM_EXPIRE = PREFIX + "filesystem.expire"
IN_PROCESS_LEASE = "lakelatch.lock.in_process.lease_s"
LEASE = "lakelatch.lock.lease_s"
KEEPER = "lakelatch.lock.keeper"

DEFAULT_PROVIDER = "filesystem"
KNOWN_LOCK_KEYS = frozenset(
    {
        PROVIDER,
        WAIT_TIME,
        CLIENT_RETRIES,
        CLIENT_RETRY_WAIT,
        RETRIES,
        RETRY_WAIT,
        RETRY_WAIT_MAX,
        FILESYSTEM_PATH,
        FILESYSTEM_EXPIRE,
        IN_PROCESS_LEASE,
        LEASE,
        KEEPER,
    }
)

_DAY_MS = 86_400_000
LEASE_LEAST_S, LEASE_MOST_S = 1.0, 3600.0
DEFAULT_LEASE_S = 15.0
_IN_PROCESS_LEAST_S = 0.05
_PROVIDER_KEY = re.compile(re.escape(PREFIX) + r"([a-z0-9_]+)\..+")
_OUR_GROUPS = ("client", "filesystem", "conflict")  # their keys are all known, so any other is a slip of the pen


def is_provider_key(key: str) -> bool:
    """Whether an option belongs to a provider of its own (`hoodie.write.lock.<provider>.`), which judges it itself."""
    match = _PROVIDER_KEY.fullmatch(key)
    return match is not None and match.group(1) not in _OUR_GROUPS


@dataclass(frozen=True)
class LockOptions:
    """How locks are taken; the fields are Hudi's options of the same names.

    `wait_time_ms` is the whole time that a caller waits for a key. Hudi waits that long again and again
    (`client_num_retries` times), since its providers lose their place in the queue between tries. The retry fields are
    for providers whose service has to be asked again; the built-in ones are woken and need none.
    `lease_s` is `lakelatch.lock.lease_s`: a process that does not renew its session with a lock service for so long
    counts as dead (the providers' default, mostly 15, if it is None). `keeper` is `lakelatch.lock.keeper`: a process of
    its own renews the session, also while Python cannot run here. `filesystem_expire_minutes` is accepted and has
    no effect: kernel locks do not expire, they end with the process.
    """

    provider: str = DEFAULT_PROVIDER
    wait_time_ms: int = 60_000
    client_num_retries: int = 50
    client_wait_time_ms_between_retry: int = 5_000
    num_retries: int = 15
    wait_time_ms_between_retry: int = 1_000
    max_wait_time_ms_between_retry: int = 16_000
    filesystem_path: str | None = None
    filesystem_expire_minutes: int = 0
    in_process_lease_s: float | None = None
    lease_s: float | None = None
    keeper: bool = False

    @property
    def timeout_s(self) -> float:
        """`wait_time_ms` in seconds, as `LockProvider.acquire` takes it."""
        return self.wait_time_ms / 1000

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> LockOptions:
        """Reads the keys of `KNOWN_LOCK_KEYS` and ignores all others.

        Errors: `InvalidRequest`, naming the option, its value and what is possible.
        """
        found = cls(
            provider=_text(options, PROVIDER, DEFAULT_PROVIDER),
            wait_time_ms=whole_number(options, WAIT_TIME, 60_000, 0, 7 * _DAY_MS),
            client_num_retries=whole_number(options, CLIENT_RETRIES, 50, 0, 1_000_000),
            client_wait_time_ms_between_retry=whole_number(options, CLIENT_RETRY_WAIT, 5_000, 0, _DAY_MS),
            num_retries=whole_number(options, RETRIES, 15, 0, 1_000_000),
            wait_time_ms_between_retry=whole_number(options, RETRY_WAIT, 1_000, 0, _DAY_MS),
            max_wait_time_ms_between_retry=whole_number(options, RETRY_WAIT_MAX, 16_000, 0, _DAY_MS),
            filesystem_path=_text(options, FILESYSTEM_PATH, None) if FILESYSTEM_PATH in options else None,
            filesystem_expire_minutes=whole_number(options, FILESYSTEM_EXPIRE, 0, 0, 10_000_000),
            in_process_lease_s=lease_s_of(options, IN_PROCESS_LEASE, _IN_PROCESS_LEAST_S),
            lease_s=lease_s_of(options, LEASE),
            keeper=flag(options, KEEPER),
        )
        if RETRY_WAIT_MAX in options and found.max_wait_time_ms_between_retry < found.wait_time_ms_between_retry:
            raise InvalidRequest(
                f"{RETRY_WAIT_MAX}={found.max_wait_time_ms_between_retry} is below {RETRY_WAIT}="
                f"{found.wait_time_ms_between_retry}: raise the first or lower the second",
                option=RETRY_WAIT_MAX,
            )
        return found


def _text(options: Mapping[str, str], key: str, default: str | None) -> str:
    text = options.get(key, default)
    if text is None or not text.strip():
        raise InvalidRequest(f"{key}={text!r} is empty: give it a value, or remove it", option=key)
    return text.strip()


def lease_s_of(options: Mapping[str, str], key: str, least_s: float = LEASE_LEAST_S) -> float | None:
    """An option that is a lease time in seconds; None if it is not set."""
    if key not in options:
        return None
    text = str(options[key]).strip()
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least_s <= value <= LEASE_MOST_S:
        raise InvalidRequest(
            f"{key}={text!r} is no lease time: use {least_s:g} to {LEASE_MOST_S:g} seconds, or remove it", option=key
        )
    return value
