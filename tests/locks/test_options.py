"""Lock options: defaults, bounds, and whose key is whose."""

from __future__ import annotations

import dataclasses

import pytest

from lakelatch.errors import InvalidRequest
from lakelatch.locks import options as keys
from lakelatch.locks.options import KNOWN_LOCK_KEYS, LockOptions, is_provider_key


def test_defaults_are_hudi_s_but_for_the_provider() -> None:
    assert LockOptions.from_options({}) == LockOptions()
    assert LockOptions().provider == "filesystem"
    assert LockOptions().timeout_s == 60.0


def test_every_known_key_is_read() -> None:
    values = {**dict.fromkeys(KNOWN_LOCK_KEYS, "7"), keys.KEEPER: "true"}
    found = dataclasses.asdict(LockOptions.from_options({**values, "hoodie.write.lock.zookeeper.url": "host"}))
    default = dataclasses.asdict(LockOptions())
    assert len(found) == len(KNOWN_LOCK_KEYS)
    assert [name for name, value in found.items() if value == default[name]] == []


@pytest.mark.parametrize(
    "key, value",
    [
        (keys.WAIT_TIME, "-1"),
        (keys.WAIT_TIME, "soon"),
        (keys.WAIT_TIME, "1.5"),
        (keys.WAIT_TIME, "9999999999"),
        (keys.WAIT_TIME, "²"),
        (keys.CLIENT_RETRIES, "-1"),
        (keys.RETRY_WAIT, ""),
        (keys.PROVIDER, " "),
        (keys.FILESYSTEM_PATH, ""),
        (keys.FILESYSTEM_EXPIRE, "never"),
        (keys.IN_PROCESS_LEASE, "0"),
        (keys.IN_PROCESS_LEASE, "nan"),
        (keys.IN_PROCESS_LEASE, "long"),
    ],
)
def test_a_bad_value_is_refused_by_name(key: str, value: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        LockOptions.from_options({key: value})
    assert key in str(caught.value) and value.strip() in str(caught.value)


def test_the_longest_wait_between_tries_is_not_below_the_first() -> None:
    with pytest.raises(InvalidRequest, match=keys.RETRY_WAIT_MAX):
        LockOptions.from_options({keys.RETRY_WAIT: "500", keys.RETRY_WAIT_MAX: "400"})
    assert LockOptions.from_options({keys.RETRY_WAIT: "20000"}).wait_time_ms_between_retry == 20_000


@pytest.mark.parametrize(
    "key, belongs",
    [
        ("hoodie.write.lock.zookeeper.url", True),
        ("hoodie.write.lock.my_own.some.key", True),
        ("hoodie.write.lock.filesystem.pth", False),
        ("hoodie.write.lock.client.num_tries", False),
        ("hoodie.write.lock.conflict.resolution.strategy", False),
        ("hoodie.write.lock.wait_time", False),
        ("hoodie.write.lock.zookeeper.", False),
        ("hoodie.write.concurrency.mode", False),
    ],
)
def test_a_provider_s_own_keys_are_told_from_slips_of_the_pen(key: str, belongs: bool) -> None:
    assert is_provider_key(key) is belongs
