"""Where tables lie that are opened without Spark."""

from __future__ import annotations

from typing import TypeVar

import pytest

from lakelatch.engine import writing
from lakelatch.storage.contract import Storage

S = TypeVar("S", bound=Storage)


def opened_in(made: S, monkeypatch: pytest.MonkeyPatch) -> S:
    """Has every table that a test writes without Spark lie in this storage; returns it."""
    monkeypatch.setattr(writing, "open_storage", lambda *_: made)
    return made
