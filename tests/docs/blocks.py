"""Runs the blocks of code of a page, top to bottom, and compares what they print with what stands below.

What each kind of block means is in `docs/design/0047-site.md`. `python tests/docs/blocks.py docs/from-hudi.md` writes
anew what a page shows.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from commands import WAY_OUT, run_commands
from sybil import Document, Example, Region
from sybil.parsers.markdown.lexers import DirectiveInHTMLCommentLexer, FencedCodeBlockLexer

import lakelatch
from lakelatch.errors import LakelatchError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

tomllib = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
DATA = "/data"  # where the tables of a page lie
NOT_RUN = re.compile(r"^ *<!-- not run:? *(.*?) *-->", re.MULTILINE)
PASSIVE = ("", "text", "{eval-rst}")  # what is printed, and what other programs read
_ABOVE = re.compile(r"<!-- not run: [^\n]+ -->\n\s*$")
_VOLATILE = re.compile(r"\d{17}|\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?")  # times
_LEXERS = (FencedCodeBlockLexer(r"[^\n`]*"), DirectiveInHTMLCommentLexer("invisible-code-block", "python"))


@dataclass
class Page:
    """The blocks of one page, which share their names, with `/data` as a folder of their own.

    `shows_all` is whether whatever is printed has to be shown.
    """

    path: Path
    folder: Path
    spark: SparkSession | None = None
    shows_all: bool = False
    written: list[tuple[int, int, str]] = field(default_factory=list)

    def run(self, compare: bool = True) -> None:
        """Runs all blocks; the first one that fails, or prints what the page does not show, is an AssertionError."""
        document = Document.parse(str(self.path), lambda document: self._regions(document, compare))
        document.namespace["spark"] = self.spark
        before = self._catalog()
        try:
            for example in document:
                example.evaluate()
        finally:  # pages share the session
            if self.spark:
                lakelatch.disable(self.spark)
                for namespace, name in self._catalog() - before:
                    if namespace:
                        self.spark.sql(f"DROP TABLE {namespace}.{name}")
                    else:
                        self.spark.catalog.dropTempView(name)

    def shown_anew(self) -> str:
        """The page, with what its blocks print."""
        self.run(compare=False)
        text = self.path.read_text()
        for start, end, output in reversed(self.written):
            text = text[:start] + output + text[end:]
        return text

    def _regions(self, document: Document, compare: bool) -> Iterator[Region]:
        regions = sorted((one for lexer in _LEXERS for one in lexer(document)), key=lambda one: one.start)
        for region, following in zip(regions, [*regions[1:], None], strict=True):
            between = document.text[region.end : following.start] if following else "-"
            is_output = following and between.strip() == "" and not language_of(following) and language_of(region)
            output = following if is_output else None
            region.evaluator = self._evaluator(region, output, compare)
            yield region

    def _evaluator(self, region: Region, output: Region | None, compare: bool) -> Callable[[Example], str | None]:
        def evaluate(example: Example) -> str | None:
            language, code = language_of(region), region.lexemes["source"].replace(DATA + "/", f"{self.folder}/")
            runs = not _ABOVE.search(example.document.text[: region.start])
            printed = StringIO()
            with redirect_stdout(printed):
                try:
                    self._run(language, code, example, runs, output is not None)
                except LakelatchError as error:
                    if not output:
                        raise
                    print(f"{type(error).__module__}.{type(error).__name__}: {error}")
            said = "\n".join(line.rstrip() for line in printed.getvalue().strip("\n").splitlines())
            return self._compare(said.replace(f"{self.folder}/", DATA + "/"), region, output, compare)

        return evaluate

    def _compare(self, said: str, region: Region, output: Region | None, compare: bool) -> str | None:
        hidden = "language" not in region.lexemes
        if not output and (not said or hidden or not self.shows_all):
            return None
        if compare:
            shown = output.lexemes["source"].strip("\n") if output else ""
            same = without_times(shown) == without_times(said)
            return None if same else f"it prints\n{said}\nand the page shows\n{shown}"
        start, end = (output.start, output.end) if output else (region.end, region.end)
        self.written.append((start, end, ("" if output else "\n\n") + (f"```\n{said}\n```" if said else "")))
        return None

    def _run(self, language: str, code: str, example: Example, runs: bool, shown: bool) -> None:
        if language in ("python", "diff"):
            text = after(code) if language == "diff" else code
            compiled = compile("\n" * example.line + text, example.path, "exec", dont_inherit=True)
            if runs:
                exec(compiled, example.namespace)
        elif language in ("sh", "bash"):
            run_commands(code, runs, shown)
        elif language == "sql" and self.spark:
            for statement in filter(str.strip, re.split(r";\s*\n|;\s*$", code) if runs else ()):
                self.spark.sql(statement)
        elif language == "json":
            json.loads(code)
        elif language == "yaml":
            list(yaml.safe_load_all(code))
        elif language == "toml":
            tomllib.loads(code)
        else:
            assert language in PASSIVE or not runs, f"no test runs blocks of {language!r}: {WAY_OUT}"

    def _catalog(self) -> set[tuple[str, str]]:
        """The tables and the temporary views of the session; these have no namespace."""
        if not self.spark:
            return set()
        return {(one.namespace, one.tableName) for one in self.spark.sql("SHOW TABLES").collect()}


def language_of(region: Region) -> str:
    """The language of a block; a hidden one is Python."""
    return str(region.lexemes.get("language", "python")).strip()


def needs_spark(path: Path) -> bool:
    """Whether blocks of a page, or what they print, name the session."""
    document = Document(path.read_text(), str(path))
    regions = [one for lexer in _LEXERS for one in lexer(document)]
    codes = {(language_of(one), one.lexemes["source"]) for one in regions}
    return any(kind == "sql" or (kind in ("python", "diff") and re.search(r"\bspark\b", code)) for kind, code in codes)


def after(diff: str) -> str:
    """The code that a block in `diff` ends with."""
    return "".join(line[1:] for line in diff.splitlines(keepends=True) if not line.startswith("-"))


def without_times(text: str) -> str:
    """Output by which two runs can be compared."""
    return re.sub(r" {2,}", " ", re.sub(r"-{2,}", "--", _VOLATILE.sub("?", text)))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
    from spark_session import open_test_session

    for name in map(Path, sys.argv[1:]):
        with tempfile.TemporaryDirectory() as folder:
            session: Any = open_test_session() if needs_spark(name) else None
            name.write_text(Page(name, Path(folder), session, name.name.startswith("from-")).shown_anew())
