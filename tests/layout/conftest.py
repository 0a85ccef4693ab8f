"""The source tree as its own tests see it."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Source:
    """One Python file; `name` is its path below the repository."""

    path: Path
    name: str

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.name)

    @property
    def package(self) -> str:
        """The root folder, or the name of a module that every package may use, as in `lakelatch.errors`."""
        parts = Path(self.name).with_suffix("").parts
        return ".".join(parts[1:]) if parts[0] == "src" else parts[0]

    @cached_property
    def imports(self) -> list[str]:
        """Dotted names of all that is imported, anywhere in the file, also below `TYPE_CHECKING`."""
        found = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                found += [f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names]
        return found


class SourceTree:
    """The repository's own files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.packages = sorted(path.parent.name for path in root.glob("*/__init__.py"))
        self.links = root / "src" / "lakelatch"

    @cached_property
    def shipped(self) -> list[Source]:
        """What the wheel holds, by its real path."""
        beside = [*self.links.glob("*.py"), *self.root.glob("src/pyspark_lakelatch/**/*.py")]
        return self._sources(
            [*beside, *(path for package in self.packages for path in (self.root / package).rglob("*.py"))]
        )

    @cached_property
    def tests(self) -> list[Source]:
        return self._sources(self.root.glob("tests/**/*.py"))

    @cached_property
    def everything(self) -> list[Source]:
        return [*self.shipped, *self.tests, *self._sources(self.root.glob("bench/**/*.py"))]

    @cached_property
    def documents(self) -> list[Path]:
        folders = [*self.packages, "docs", "tests", "bench", "src"]
        below = [path for folder in folders for path in (self.root / folder).rglob("*.md")]
        return sorted([*self.root.glob("*.md"), *below])

    def _sources(self, paths: Iterable[Path]) -> list[Source]:
        return [Source(path, str(path.relative_to(self.root))) for path in sorted(paths)]


@pytest.fixture(scope="session")
def source_tree() -> SourceTree:
    return SourceTree(ROOT)
