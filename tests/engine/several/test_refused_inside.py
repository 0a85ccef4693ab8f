"""Services of a table that act at once are refused inside a block."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from several_tables import FIRST, OPTIMISTIC, Tables, rows, values

import lakelatch
from lakelatch.errors import InvalidRequest


@pytest.mark.parametrize("name", ["restore", "compact", "cluster", "clean", "maintain"])
def test_what_acts_at_once_is_refused_by_name(tmp_path: Path, name: str) -> None:
    """An own clustering would be in the way of the block's own change."""
    tables = Tables(tmp_path)
    tables.write(0, {1: 11})
    before = sorted(os.listdir(f"{tables.paths[0]}/.hoodie/timeline"))
    with lakelatch.transaction(tables.paths, OPTIMISTIC) as tx:
        table = tx.arrow_table(tables.paths[0])
        told = f"{name} of {tables.paths[0]} is no part of a transaction.*outside of the block"
        with pytest.raises(InvalidRequest, match=told):
            getattr(table, name)(*(["2020-01-01"] if name == "restore" else []))
        assert sorted(os.listdir(f"{tables.paths[0]}/.hoodie/timeline")) == before
        tx.upsert(tables.paths[0], rows({3: 30}))
        assert values(tx.to_arrow(tables.paths[0])) == {1: 11, 2: 20, 3: 30}
    assert tables.now() == [{1: 11, 2: 20, 3: 30}, FIRST]
