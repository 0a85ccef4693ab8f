"""That the folders of a package know each other one way only, as packages do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))
#: The rings that are still there, by package; each is refused elsewhere, and has to go from here when it is cut.
#: A folder's own modules are one node, and those of its sub-folders are others.
RINGS: dict[str, list[set[str]]] = {}


def folder_of(name: str, folders: set[str]) -> str:
    """The folder in which a module lies that is imported by this name; empty if it is in none of these."""
    parts = name.removeprefix("lakelatch.").split(".")
    for length in range(len(parts), 0, -1):
        if "/".join(parts[:length]) in folders:
            return "/".join(parts[:length])
    return ""


def folder_imports(source_tree: Any, package: str) -> dict[str, set[str]]:
    """Each folder of the package, and the other ones that its own modules import."""
    sources = [source for source in source_tree.shipped if source.package == package]
    folders = {str(Path(source.name).parent) for source in sources}
    known: dict[str, set[str]] = {folder: set() for folder in folders}
    for source in sources:
        folder = str(Path(source.name).parent)
        known[folder] |= {folder_of(name, folders) for name in source.imports if name.startswith("lakelatch.")}
    return {folder: found - {folder, ""} for folder, found in known.items()}


def rings(known: Mapping[str, set[str]]) -> list[set[str]]:
    """The largest groups of nodes that all know each other, directly or through others; in order."""
    reached: dict[str, set[str]] = {}
    for start in known:
        seen, waiting = set[str](), [start]
        while waiting:
            new = known[waiting.pop()] - seen
            seen |= new
            waiting += new
        reached[start] = seen
    found = {frozenset(other for other in seen if node in reached[other]) for node, seen in reached.items()}
    return sorted((set(ring) for ring in found if ring), key=sorted)


def test_rings_are_found() -> None:
    known = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set[str](), "e": {"f"}, "f": {"a", "e"}}
    assert rings(known) == [{"b", "c"}, {"e", "f"}]
    folders = {"format", "format/log"}
    assert folder_of("lakelatch.format.log.blocks.encode", folders) == "format/log"
    assert folder_of("lakelatch.format.names", folders) == "format" and folder_of("lakelatch.errors", folders) == ""


@pytest.mark.parametrize("package", PACKAGES)
def test_folders_of_a_package_know_each_other_one_way(source_tree: Any, package: str) -> None:
    known = folder_imports(source_tree, package)
    found = rings(known)
    for ring in found:
        print(f"{package}: a ring of {', '.join(sorted(ring))}")
        for folder in sorted(ring):
            print(f"  {folder} imports {', '.join(sorted(known[folder] & ring))}")
    assert found == sorted(RINGS.get(package, []), key=sorted)
