"""Options that nobody knows: what the caller is told."""

from __future__ import annotations

import pytest

from lakelatch.errors import InvalidRequest
from lakelatch.spark.options import normalise


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
