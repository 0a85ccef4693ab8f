"""Runs the examples of a page of the documentation, and puts what they print in the place of what stands there.

A block in `diff` has a pipeline before and after: lines with `-` are what it was, and all others are run as Python.

`python tests/docs/pages.py docs/from-hudi.md` writes the page anew.
"""

from __future__ import annotations

import re
import shlex
import sys
import tempfile
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import lakelatch
from lakelatch.console.main import main
from lakelatch.errors import LakelatchError

DATA = "/data"  # where the tables of a page lie
# A block that is run, and the block of what it prints, if it prints anything. Other languages are not run.
_BLOCK = re.compile(r"^```(python|diff|sh)\n(.*?)^```\n(?:\n```\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
_VOLATILE = re.compile(r"\d{17}|\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?")  # times


@dataclass
class Page:
    """One page's examples, which share their names, with `/data` as a folder of their own."""

    text: str
    folder: Path
    names: dict[str, Any] = field(default_factory=dict)

    def run(self, spark: SparkSession) -> str:
        """The page as it should be."""
        self.names.setdefault("spark", spark)
        before = _catalog(spark)
        try:
            return _BLOCK.sub(self._block, self.text)
        finally:  # pages share the session
            lakelatch.disable(spark)
            for kind, name in _catalog(spark) - before:
                spark.sql(f"DROP {kind} {name}")

    def _block(self, found: re.Match[str]) -> str:
        language, code = found.group(1), found.group(2)
        here = code.replace(DATA + "/", f"{self.folder}/")
        said = self._commands(here) if language == "sh" else self._python(after(here) if language == "diff" else here)
        said = said.replace(f"{self.folder}/", DATA + "/")
        lines = [line.rstrip() for line in said.strip("\n").splitlines()]
        block = f"```{language}\n{code}```\n"
        return block + ("\n```\n" + "\n".join(lines) + "\n```\n" if lines else "")

    def _python(self, code: str) -> str:
        printed = StringIO()
        with redirect_stdout(printed):
            try:
                exec(compile(code, "<page>", "exec"), self.names)
            except LakelatchError as error:
                print(f"{type(error).__module__}.{type(error).__name__}: {error}")
        return printed.getvalue()

    def _commands(self, lines: str) -> str:
        printed = StringIO()
        for line in lines.splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["lakelatch"]:
                with redirect_stdout(printed):
                    main(words[1:])
        return printed.getvalue()


def _catalog(spark: SparkSession) -> set[tuple[str, str]]:
    """The tables and the temporary views of a session."""
    return {("VIEW" if one.isTemporary else "TABLE", one.tableName) for one in spark.sql("SHOW TABLES").collect()}


def after(diff: str) -> str:
    """The code that a block in `diff` ends with."""
    return "".join(line[1:] for line in diff.splitlines(keepends=True) if not line.startswith("-"))


def without_times(text: str) -> str:
    """A page by which two runs can be compared."""
    return re.sub(r" {2,}", " ", re.sub(r"-{2,}", "--", _VOLATILE.sub("?", text)))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
    from spark_session import open_test_session

    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            page = Page(Path(name).read_text(), Path(folder))
            Path(name).write_text(page.run(open_test_session()))
