"""Lock options: defaults, bounds, and whose key is whose."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from lakelatch.errors import InvalidRequest
from lakelatch.locks import options as keys
from lakelatch.locks.options import KNOWN_LOCK_KEYS, WITHOUT_EFFECT, LockOptions, is_provider_key

OPTIONS_PAGE = Path(__file__).parents[2] / "docs" / "options.md"


def test_defaults_are_hudi_s_but_for_the_provider() -> None:
    assert LockOptions.from_options({}) == LockOptions()
    assert LockOptions().provider == "filesystem"
    assert LockOptions().timeout_s == 60.0


def test_every_known_key_with_an_effect_is_read() -> None:
    values = dict.fromkeys(KNOWN_LOCK_KEYS, "7")
    found = dataclasses.asdict(LockOptions.from_options({**values, "hoodie.write.lock.zookeeper.url": "host"}))
    default = dataclasses.asdict(LockOptions())
    assert len(found) == len(KNOWN_LOCK_KEYS - set(WITHOUT_EFFECT))
    assert [name for name, value in found.items() if value == default[name]] == []


@pytest.mark.parametrize("key", sorted(WITHOUT_EFFECT))
def test_an_option_without_effect_is_accepted_and_documented_as_such(key: str) -> None:
    assert LockOptions.from_options({key: "7"}) == LockOptions()
    (line,) = (line for line in OPTIONS_PAGE.read_text().splitlines() if f"`{key}`" in line)
    assert "no effect" in line


@pytest.mark.parametrize(
    "key, value",
    [
        (keys.WAIT_TIME, "-1"),
        (keys.WAIT_TIME, "soon"),
        (keys.WAIT_TIME, "1.5"),
        (keys.WAIT_TIME, "9999999999"),
        (keys.WAIT_TIME, "²"),
        ("hoodie.write.lock.client.num_retries", "-1"),
        ("hoodie.write.lock.wait_time_ms_between_retry", ""),
        (keys.PROVIDER, " "),
        (keys.FILESYSTEM_PATH, ""),
        ("hoodie.write.lock.filesystem.expire", "never"),
        (keys.IN_PROCESS_LEASE, "0"),
        (keys.IN_PROCESS_LEASE, "nan"),
        (keys.IN_PROCESS_LEASE, "long"),
    ],
)
def test_a_bad_value_is_refused_by_name(key: str, value: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        LockOptions.from_options({key: value})
    assert key in str(caught.value) and value.strip() in str(caught.value)


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
def test_a_provider_s_own_keys_are_told_from_misspelt_ones(key: str, belongs: bool) -> None:
    assert is_provider_key(key) is belongs
