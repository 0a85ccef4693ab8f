"""The pages of `docs/design/path-*.md`: each is a list of at most ten hops, each of which names what is there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

DESIGN = Path(__file__).parents[2] / "docs" / "design"
PATHS = ("compaction", "lock", "read", "recovery", "write")
MOST_HOPS = 10
_HOP = re.compile(r"^(\d+)\. `(lakelatch\.[\w.]+)` ", re.MULTILINE)


def found(name: str) -> object:
    """What a dotted name stands for: a module, or something in it."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            thing: object = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            # A field without a default is no attribute of its class.
            thing = getattr(thing, part) if hasattr(thing, part) else vars(thing)["__annotations__"][part]
        return thing
    raise ModuleNotFoundError(name)


def test_there_is_a_page_for_each_path() -> None:
    assert {page.stem.removeprefix("path-") for page in DESIGN.glob("path-*.md")} == set(PATHS)


@pytest.mark.parametrize("path", PATHS)
def test_a_path_is_a_list_of_hops_that_are_there(path: str) -> None:
    page = (DESIGN / f"path-{path}.md").read_text()
    hops = _HOP.findall(page)
    assert [int(number) for number, _ in hops] == list(range(1, len(hops) + 1))
    assert len(re.findall(r"^\d+\. ", page, re.MULTILINE)) == len(hops), "a hop begins with the name of what is there"
    assert 3 <= len(hops) <= MOST_HOPS
    for _, name in hops:
        found(name)


def test_a_name_that_is_not_there_is_found_out() -> None:
    with pytest.raises((KeyError, ModuleNotFoundError)):
        found("lakelatch.locks.lease.Lease.renewed_by")
    with pytest.raises(ModuleNotFoundError):
        found("no_such_package.module")
