"""Instants as text, and the times that users write."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelatch.errors import InvalidRequest
from lakelatch.timegen.instant_time import parse_user_instant, readable, to_instant, to_ms

_LAST_MS = 253_402_300_799_999


@given(st.integers(0, _LAST_MS))
def test_an_instant_and_back(time_ms: int) -> None:
    instant = to_instant(time_ms)
    assert to_ms(instant) == time_ms
    seconds, milliseconds = divmod(time_ms, 1000)
    known = datetime.fromtimestamp(seconds, timezone.utc)
    assert instant == known.strftime("%Y%m%d%H%M%S").zfill(14) + f"{milliseconds:03d}"


@given(st.integers(0, _LAST_MS), st.integers(0, _LAST_MS))
def test_instants_sort_as_their_times(one: int, other: int) -> None:
    assert (to_instant(one) < to_instant(other)) == (one < other)


def test_what_people_read_is_read_back() -> None:
    assert readable("20261121120000123") == "2026-11-21 12:00:00.123Z"
    assert parse_user_instant(readable("20261121120000123")) == "20261121120000123"


def test_known_instants() -> None:
    assert to_instant(0) == "19700101000000000"
    assert to_instant(1_795_262_400_123) == "20261121120000123"
    assert to_instant(_LAST_MS) == "99991231235959999"
    assert to_ms("20261121120000") == to_ms("20261121120000999")


@pytest.mark.parametrize("time_ms", [-1, _LAST_MS + 1])
def test_times_that_have_no_instant(time_ms: int) -> None:
    with pytest.raises(InvalidRequest, match=str(time_ms)):
        to_instant(time_ms)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026",
        "2026112112000012",
        "202611211200001234",
        "20261321120000123",
        "20260230120000123",
        "20261121240000123",
        "20261121126000123",
        "20261121120060123",
        "2026112112000012x",
        "+0261121120000123",
        "²0261121120000123",
        "٢0261121120000123",
        "19691231235959999",
        "00000000000000000",
    ],
)
def test_what_is_no_instant(text: str) -> None:
    with pytest.raises(InvalidRequest):
        to_ms(text)


@pytest.mark.parametrize(
    "text, instant",
    [
        ("20261121120000123", "20261121120000123"),
        ("20261121120000", "20261121120000999"),
        ("2026-11-21", "20261121000000000"),
        ("2026-11-21 12:00:00", "20261121120000999"),
        ("2026-11-21 12:00:00.123", "20261121120000123"),
        ("2026-11-21T12:00:00", "20261121120000999"),
        ("2026-11-21T12:00:00Z", "20261121120000999"),
        (" 2026-11-21T12:00:00.000+00:00 ", "20261121120000000"),
        ("000", "00000000000000000"),
        ("0", "00000000000000000"),
    ],
)
def test_what_users_write(text: str, instant: str) -> None:
    assert parse_user_instant(text) == instant


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "now",
        "2026-13-01",
        "2026-11-31",
        "2026-11-21 24:00:00",
        "2026-11-21 12:00",
        "2026-11-21 12:00:00.1",
        "21.11.2026",
        "2026-11-21T12:00:00+01:00",
        "20261121",
        "2026-11-21Z",
        "2026-11-21 12:00:00\n2026",
    ],
)
def test_what_users_should_not_write(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_user_instant(text)
