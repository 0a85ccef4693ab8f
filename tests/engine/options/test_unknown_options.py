"""Options that nobody knows: what the caller is told."""

from __future__ import annotations

import re

import pytest

from lakelatch.engine.options.calls.other_formats import OTHER_OPTIONS, OtherOption
from lakelatch.engine.options.calls.registry import KNOWN_KEYS, Call, normalise
from lakelatch.errors import InvalidRequest


@pytest.mark.parametrize(
    "given, meant",
    [
        ("hoodie.bucket.index.num.bucket", "hoodie.bucket.index.num.buckets"),
        ("hoodie.datasource.write.recordkey.fields", "hoodie.datasource.write.recordkey.field"),
        ("lakelatch.table.name", "hoodie.table.name"),
        ("colums", "columns"),
    ],
)
def test_a_slip_is_told_with_what_was_meant(given: str, meant: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        normalise({given: "x"})
    assert caught.value.message == (
        f"the option {given!r} is not known: did you mean {meant!r}? Correct it, or remove it"
    )


@pytest.mark.parametrize("given", ["hoodie.my.own.idea", "header", "hoodie.datasource.read.speed"])
def test_what_is_like_no_option_is_told_without_a_wrong_hint(given: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        normalise({given: "x"})
    assert caught.value.message == f"the option {given!r} is not known: remove it"


@pytest.mark.parametrize(
    "given, value, told",
    [
        ("versionAsOf", "3", "as.of.instant=<a completion time>, which `Table.history()` lists"),
        ("timestampAsOf", "2026-01-02 03:04:05", "as.of.instant=2026-01-02 03:04:05, which is taken as UTC"),
        ("timestampAsOf", "yesterday", "as.of.instant=2026-11-21 12:00:00"),
        ("readChangeFeed", "true", "hoodie.datasource.query.incremental.format=cdc"),
        ("startingVersion", "0", "hoodie.datasource.streaming.startOffset"),
        ("as-of-timestamp", "1764547200000", "as.of.instant=20251201000000000"),
        ("partitionBy", "city", "hoodie.datasource.write.partitionpath.field=city"),
        ("primaryKey", "{id}", "hoodie.datasource.write.recordkey.field={id}"),
    ],
)
def test_an_option_of_another_format_is_told_with_what_it_is_here(given: str, value: str, told: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Call({given.lower(): value})  # as Spark hands it over
    assert f"it is {given} of " in caught.value.message and told in caught.value.message
    assert caught.value.details["option"] == given.lower()


@pytest.mark.parametrize("other", OTHER_OPTIONS.values(), ids=lambda one: str(one.name))
def test_what_is_told_instead_is_known_and_the_option_is_not(other: OtherOption) -> None:
    assert other.name.lower() not in KNOWN_KEYS
    named = re.findall(r"\b(?:hoodie|lakelatch|as)\.[a-zA-Z.]+[a-zA-Z](?==|,| |\)|$)", other.way_out("20260102"))
    named = [name for name in named if not name.startswith(("lakelatch.write_", "lakelatch.write "))]
    assert {name.lower() for name in named if name != "lakelatch.write"} <= KNOWN_KEYS
