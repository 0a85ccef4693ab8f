"""What is released: one version, free licences, extras whose sizes are written down, a wheel that is the tree."""

from __future__ import annotations

import json
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


def test_the_page_of_evidence_is_of_its_records(source_tree: Any) -> None:
    made = runpy.run_path(str(SCRIPTS / "evidence-page"))
    assert made["PAGE"].read_text() == made["page"](), "run make evidence"


def test_sizes_are_known_of_each_extra(source_tree: Any, dependencies: dict[str, Any]) -> None:
    told = json.loads((source_tree.root / "docs" / "evidence" / "sizes.json").read_text())["extras"]
    assert set(told) == {"", *dependencies["extras"]()} - {"dev", "demo"}, "run .ci/dependencies sizes"


def test_the_first_page_says_what_is_saved_without_spark(source_tree: Any) -> None:
    told = json.loads((source_tree.root / "docs" / "evidence" / "sizes.json").read_text())["extras"]
    core = told[""]["megabytes"]
    more = {extra: told[extra]["megabytes"] - core for extra in ("spark", "console", "ui")}
    without = core + more["console"] + more["ui"]
    assert 0.3 < without / (without + more["spark"]) < 0.36
    assert "'lakelatch[console,ui]'`, in a third of the space" in (source_tree.root / "docs" / "start.md").read_text()


def test_goals_that_are_met_in_part_or_not_are_told_apart() -> None:
    goals = runpy.run_path(str(SCRIPTS / "evidence-page"))["_goals"]
    rows = (
        "figure | met",
        "--- | ---",
        "a | yes",
        "b | **no**",
        "c | **1 of 2**",
        "d | ",
        "e | **no**; yes",
        "f | **no**, by 5 %",
    )
    body = "text\n" + "".join(f"| {row} |\n" for row in rows) + "\n| other | cell |\n| --- | --- |\n| a | yes |\n"
    assert list(goals(body)) == ["yes", "no", "in part", "in part", "no"]


def test_a_run_of_other_versions_is_noted_down() -> None:
    note = runpy.run_path(str(SCRIPTS / "note-versions"))["note"]
    line = json.loads(note("Python 3.14.1 PySpark 4.3.0\n....\n2 failed, 31 passed in 5s\n", "abc", "2026-01-01"))
    assert (line["python"], line["pyspark"], line["passed"], line["failed"]) == ("3.14.1", "4.3.0", 31, 2)
