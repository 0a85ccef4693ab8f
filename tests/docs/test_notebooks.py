"""Notebooks of the documentation answer what is stored in them."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from notebooks import NOTEBOOKS, answers, executed


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("notebook", [pytest.param(one, id=one.name) for one in NOTEBOOKS])
def test_a_notebook_answers_what_is_stored_in_it(notebook: Path) -> None:
    stored = answers(nbformat.read(notebook, as_version=4))
    assert any(answer for _, answer in stored)
    assert answers(executed(notebook)) == stored
