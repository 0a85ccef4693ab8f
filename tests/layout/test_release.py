"""What is released: one version, free licences, extras whose sizes are written down, a wheel that is the tree."""

from __future__ import annotations

import runpy
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from importlib.metadata import PathDistribution, version
from pathlib import Path
from typing import Any

import pytest

import lakelatch

SCRIPTS = Path(__file__).parents[2] / ".ci"


@pytest.fixture(scope="module")
def dependencies() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPTS / "dependencies"))


def test_the_version_stands_in_one_place(source_tree: Any) -> None:
    known = lakelatch.__version__
    assert version("lakelatch") == known
    listed = subprocess.run(["git", "grep", "-lF", f'"{known}"'], cwd=source_tree.root, capture_output=True, text=True)
    assert {name for name in listed.stdout.split() if not name.startswith("docs/evidence/")} == {"pyproject.toml"}


def test_the_changelog_begins_with_what_is_not_released(source_tree: Any) -> None:
    heads = [line for line in (source_tree.root / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")]
    assert heads[0] == "## [Unreleased]" and len(heads) == len(set(heads))


def test_every_licence_is_one_that_was_looked_at(dependencies: dict[str, Any]) -> None:
    assert not dependencies["refused"]()
    free: Callable[[str], bool] = dependencies["is_free"]
    assert free("MIT") and free("Apache-2.0 OR (BSD-3-Clause AND MIT)")
    for other in ("GPL-3.0-only", "MIT AND LGPL-2.1-or-later", "nothing", "Proprietary", "", "(", "MPL-2.0"):
        assert not free(other), other


@pytest.mark.parametrize(
    ("said", "licence"),
    [
        ("License-Expression: MIT OR Apache-2.0", "MIT OR Apache-2.0"),
        ("Classifier: License :: OSI Approved :: Apache Software License", "Apache-2.0"),
        ("Classifier: License :: OSI Approved\nLicense: 3-Clause BSD License", "BSD-3-Clause"),
        ("License: as you like it\n        and more", "as you like it"),
        ("Summary: it says nothing", "nothing"),
    ],
)
def test_a_licence_is_read_from_what_a_package_says(
    dependencies: dict[str, Any], tmp_path: Path, said: str, licence: str
) -> None:
    (tmp_path / "METADATA").write_text(f"Metadata-Version: 2.4\nName: x\nVersion: 1\n{said}\n")
    assert dependencies["licence"](PathDistribution(tmp_path)) == licence


def test_an_extra_brings_the_core_and_its_own(dependencies: dict[str, Any]) -> None:
    closure: Callable[[str], dict[str, Any]] = dependencies["closure"]
    core, redis = set(closure("")), set(closure("redis"))
    assert core == {"pyarrow", "numpy", "fastavro", "javaproperties", "sqlglot"} and redis - core == {"redis"}
    assert {"pyspark", "py4j", "pandas", "rich", "jinja2"} <= set(closure("torture"))
    assert not {"pytest", "mypy", "hudi"} & set(closure("all"))


def _pack(folder: Path, wheel: dict[str, str], sdist: list[str]) -> Path:
    folder.mkdir()
    with zipfile.ZipFile(folder / "x-1-py3-none-any.whl", "w") as archive:
        for name, text in wheel.items():
            archive.writestr(name, text)
    with tarfile.open(folder / "x-1.tar.gz", "w:gz") as archive:
        for name in sdist:
            archive.addfile(tarfile.TarInfo(f"x-1/{name}"))
    return folder


def test_a_wheel_and_an_sdist_that_are_not_the_tree_are_found_out(tmp_path: Path) -> None:
    check = runpy.run_path(str(SCRIPTS / "check-dist"))["problems"]
    tree = _pack(tmp_path / "tree", {"x/a.py": "1", "x/b.py": "2", "x.dist-info/RECORD": "?"}, [])
    same = _pack(
        tmp_path / "same", {"x/a.py": "1", "x/b.py": "2", "x.dist-info/RECORD": "!"}, ["a.py", "b.py", "PKG-INFO"]
    )
    assert check(same, tree, {"a.py", "b.py", ".gitignore"}) == []
    other = _pack(tmp_path / "other", {"x/a.py": "3", "x/c.py": "2"}, ["a.py", "secret"])
    assert check(other, tree, {"a.py", "b.py"}) == [
        "the wheel lacks x/b.py",
        "the wheel has x/c.py, and the tree has not",
        "x/a.py is another in the wheel",
        "the sdist lacks b.py",
        "the sdist has secret, which git does not know",
    ]
