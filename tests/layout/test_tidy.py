"""That the tree stays readable: short files and functions, true `__all__`s, live links, tests that can fail."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

FILE_LINES_MAX = 420
FUNCTION_LINES_MAX = 70
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
CODE = re.compile(r"^ *(```|~~~).*?^ *\1|`[^`\n]+`", re.MULTILINE | re.DOTALL)
HELPER = re.compile(r"_?(assert|check)(_|$)")

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.AST) -> Iterator[Function]:
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield node


def test_files_are_short(source_tree: Any) -> None:
    long = {source.name: len(source.text.splitlines()) for source in source_tree.everything}
    assert len(long) > 80
    assert not {name: lines for name, lines in long.items() if lines > FILE_LINES_MAX}


def test_functions_fit_on_a_screen(source_tree: Any) -> None:
    long = []
    for source in source_tree.everything:
        for function in functions(source.tree):
            lines = (function.end_lineno or 0) - function.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                long.append(f"{source.name}: {function.name} has {lines} lines")
    assert not long


def test_nothing_is_left_for_later(source_tree: Any) -> None:
    texts = [(source.name, source.text) for source in source_tree.everything]
    texts += [(str(path), path.read_text()) for path in source_tree.documents]
    assert not [name for name, text in texts if UNFINISHED.search(text)]


def test_imports_are_absolute(source_tree: Any) -> None:
    for source in source_tree.everything:
        assert not [name for name in source.imports if name.startswith(".")], source.name


def test_every_all_is_true(source_tree: Any) -> None:
    seen = 0
    for source in source_tree.shipped:
        if not any(isinstance(node, ast.Assign) and names_all(node) for node in source.tree.body):
            continue
        parts = list(Path(source.name.removeprefix("src/")).with_suffix("").parts)
        dotted = ".".join(parts if source.name.startswith("src/") else ["lakelatch", *parts])
        module = import_module(dotted.removesuffix(".__init__"))
        exported = list(module.__all__)
        assert len(exported) == len(set(exported)), source.name
        assert not [name for name in exported if not hasattr(module, name)], source.name
        seen += 1
    assert seen > 0


def names_all(node: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)


def test_every_relative_link_is_alive(source_tree: Any) -> None:
    dead, seen = [], 0
    for document in source_tree.documents:
        for target in LINK.findall(CODE.sub("", document.read_text())):
            if "://" in target or target.startswith(("#", "mailto:")):
                continue
            seen += 1
            path = unquote(target.partition("#")[0])
            if not (document.parent / path).exists():
                dead.append(f"{document.relative_to(source_tree.root)} -> {target}")
    assert seen > 0 and not dead


def test_every_test_that_a_page_names_is_there(source_tree: Any) -> None:
    pages = [*source_tree.root.glob("docs/*.md"), source_tree.root / "README.md"]
    named = {name for page in pages for name in re.findall(r"`(tests/[\w/.]+)`", page.read_text())}
    assert len(named) > 30 and not [name for name in named if not (source_tree.root / name).exists()]


def test_every_design_note_is_in_the_index(source_tree: Any) -> None:
    index = (source_tree.root / "docs" / "design" / "README.md").read_text().partition("## By number")[2]
    notes = {path.name for path in source_tree.root.glob("docs/design/*.md")} - {"README.md"}
    assert "0001-layout.md" in notes and not [name for name in notes if f"({name})" not in index]


def test_every_test_can_fail(source_tree: Any) -> None:
    idle, seen = [], 0
    for source in [*source_tree.tests, *(one for one in source_tree.shipped if one.package == "testing")]:
        helpers = {function.name for function in functions(source.tree) if fails(function, set())}
        for function in functions(source.tree):
            if function.name.startswith("test_"):
                seen += 1
                if not fails(function, helpers):
                    idle.append(f"{source.name}: {function.name}")
    assert seen > 100 and not idle


def fails(function: Function, helpers: set[str]) -> bool:
    """Whether this can fail a test: by an assert, `pytest.raises`, or a helper that checks or says so by its name."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert) or (isinstance(node, ast.Raise) and "AssertionError" in ast.unparse(node)):
            return True
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            if name in ("raises", "fail") or name in helpers or HELPER.match(name):
                return True
    return False
