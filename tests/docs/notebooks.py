"""Runs the notebooks of the documentation, each in a kernel and an empty folder of its own.

`python tests/docs/notebooks.py` runs all of them and stores what they answer, as the site and GitHub show it.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = sorted(Path(__file__).parents[2].glob("docs/**/*.ipynb"))
_OF_A_RUN = re.compile(r"\d{17}")  # instants


def executed(notebook: Path) -> nbformat.NotebookNode:
    """The notebook as it is after a run of all its cells, without what libraries say while they start."""
    run: nbformat.NotebookNode = nbformat.read(notebook, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(run, timeout=300, resources={"metadata": {"path": folder}}).execute()
    for cell in _code(run):
        cell.metadata.pop("execution", None)  # when it ran
        cell.outputs = [output for output in cell.outputs if output.output_type == "execute_result" or _said(output)]
    return run


def answers(notebook: nbformat.NotebookNode) -> list[tuple[str, list[str]]]:
    """Each cell of code and what it answered, but for instants."""
    return [
        (cell.source, [_OF_A_RUN.sub("<instant>", _text(output)) for output in cell.outputs])
        for cell in _code(notebook)
    ]


def _code(notebook: nbformat.NotebookNode) -> Iterator[nbformat.NotebookNode]:
    return (cell for cell in notebook.cells if cell.cell_type == "code")


def _said(output: nbformat.NotebookNode) -> bool:
    return bool(output.output_type == "stream" and output.name == "stdout" and output.text.strip())


def _text(output: nbformat.NotebookNode) -> str:
    text: str = output.text if output.output_type == "stream" else output.data["text/plain"]
    return _OF_A_RUN.sub("<instant>", text).strip()


if __name__ == "__main__":
    for one in NOTEBOOKS:
        nbformat.write(executed(one), one)
