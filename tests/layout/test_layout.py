"""That the packages at the root, the links, the tables of pyproject.toml and a built wheel say the same."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
import zipfile
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

tomllib = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
NO_PACKAGES = {"tests", "bench", "docs"}
MODULES_FEW, MODULES_MANY = 1, 15
SCREEN_LINES = 55
READ = (".lua", ".avsc", ".html", ".css", ".js", ".svg")


@pytest.fixture(scope="module")
def project(source_tree: Any) -> dict[str, Any]:
    settings: dict[str, Any] = tomllib.loads((source_tree.root / "pyproject.toml").read_text())
    return settings


@pytest.fixture(scope="module")
def wheel_names(source_tree: Any, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """What a wheel holds that was built just now."""
    target = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(source_tree.root)],
        capture_output=True,
        text=True,
        cwd=target,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = target.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_each_package_has_one_link_and_each_link_a_package(source_tree: Any) -> None:
    links = {path.name: path for path in source_tree.links.iterdir() if path.is_symlink()}
    assert sorted(links) == source_tree.packages
    for name, link in links.items():
        assert not link.readlink().is_absolute() and link.resolve() == source_tree.root / name


def test_no_folder_at_the_root_hides_the_package(source_tree: Any) -> None:
    assert not (source_tree.root / "lakelatch").exists() and len(source_tree.packages) >= 9


def test_every_table_of_pyproject_names_every_package(source_tree: Any, project: dict[str, Any]) -> None:
    hatch = project["tool"]["hatch"]["build"]
    banned = project["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]
    tables = {
        "build.only-include": hatch["only-include"],
        "sdist.only-include": hatch["targets"]["sdist"]["only-include"],
        "wheel.sources": hatch["targets"]["wheel"]["sources"],
        "banned-api": [name for name in banned if "lakelatch" in banned[name]["msg"].split()[1]],
    }
    for table, names in tables.items():
        found = {name for name in names if "/" not in name and "." not in name} - NO_PACKAGES - {"LICENSE", "Makefile"}
        if table == "banned-api":
            found &= {name for name in names if banned[name]["msg"] == f"import lakelatch.{name}"}
        assert sorted(found) == source_tree.packages, table
    for package in source_tree.packages:
        assert hatch["targets"]["wheel"]["sources"][package] == f"lakelatch/{package}"


def test_every_extra_that_a_text_names_is_there(source_tree: Any, project: dict[str, Any]) -> None:
    named = {
        (source.name, extra)
        for source in source_tree.shipped
        for found in re.findall(r"lakelatch\[([a-z0-9,-]+)\]", source.text)
        for extra in found.split(",")
    }
    known = project["project"]["optional-dependencies"]
    assert len(named) > 5 and not [one for one in named if one[1] not in known]


def test_every_module_beside_the_packages_is_built(source_tree: Any, project: dict[str, Any]) -> None:
    hatch = project["tool"]["hatch"]["build"]
    modules = {f"src/lakelatch/{path.name}" for path in source_tree.links.iterdir() if path.is_file()}
    for table in (hatch, hatch["targets"]["sdist"]):
        assert modules <= set(table["only-include"])


def test_what_the_sdist_names_exists(source_tree: Any, project: dict[str, Any]) -> None:
    for name in project["tool"]["hatch"]["build"]["targets"]["sdist"]["only-include"]:
        assert (source_tree.root / name).exists(), name


def test_a_wheel_has_two_names_and_no_more(wheel_names: set[str]) -> None:
    top = {Path(name).parts[0] for name in wheel_names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"lakelatch", "pyspark_lakelatch"}
    assert len(top) == 3


def test_a_wheel_holds_every_module_once(source_tree: Any, wheel_names: set[str]) -> None:
    expected = set()
    for source in source_tree.shipped:
        expected.add(source.name.removeprefix("src/") if source.name.startswith("src/") else f"lakelatch/{source.name}")
    assert {name for name in wheel_names if name.endswith(".py")} == expected
    assert "lakelatch/py.typed" in wheel_names and "lakelatch/errors.py" in wheel_names


@pytest.mark.filterwarnings("always::UserWarning")
def test_long_and_short_folders_are_pointed_out(source_tree: Any) -> None:
    """Hints, and no limits: a limit would be met by folders that stand for nothing."""
    folders = Counter(Path(source.name).parent for source in source_tree.shipped if source.path.name != "__init__.py")
    assert folders
    for folder, count in sorted(folders.items()):
        if count > MODULES_MANY:
            warnings.warn(f"{folder}/ has {count} modules: is there a concept that wants a folder?", stacklevel=1)
        if count <= MODULES_FEW and folder.parent != Path("."):
            warnings.warn(f"{folder}/ has one module: should it go back to its parent?", stacklevel=1)


def test_the_map_names_every_package_and_sub_package(source_tree: Any) -> None:
    page = (source_tree.root / "AGENTS.md").read_text()
    rows = re.findall(r"^\| (`.*?`) \| .+ \|.*\|$", page.partition("## Glossary")[0], re.MULTILINE)
    named = [folder.rstrip("/") for row in rows for folder in re.findall(r"`([a-z_/]+/)`", row)]
    folders = {str(Path(source.name).parent) for source in source_tree.shipped if not source.name.startswith("src/")}
    assert sorted(named) == sorted(folders | {"timeline/schemas"})


def test_map_and_glossary_fit_on_a_screen_each(source_tree: Any) -> None:
    page = (source_tree.root / "AGENTS.md").read_text()
    for heading in ("## Packages", "## Glossary"):
        section = page.partition(heading)[2].partition("\n## ")[0]
        assert 10 < len(section.splitlines()) <= SCREEN_LINES, heading


def test_a_wheel_holds_the_files_that_modules_read(source_tree: Any, wheel_names: set[str]) -> None:
    read = {path for package in source_tree.packages for path in (source_tree.root / package).rglob("*.*")}
    expected = {f"lakelatch/{path.relative_to(source_tree.root)}" for path in read if path.suffix in READ}
    assert {name for name in wheel_names if name.endswith(READ)} == expected
    assert {"lakelatch/locks/redis/scripts/take.lua", "lakelatch/ui/static/page.html"} <= expected
