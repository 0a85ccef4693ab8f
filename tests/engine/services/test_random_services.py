"""All services on one table, in random order, beside writers: what both readers see is what was written, at each step.

A failing seed prints its steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from live_table import LiveTable
from random_tables.services import Services, Step, steps_of

from lakelatch.transactions.base.settings import NON_BLOCKING, OPTIMISTIC


def run(root: Path, mode: str, steps: Iterable[Step], watch: Callable[[Step], None] = lambda _: None) -> Services:
    services = Services(LiveTable(root, mode))
    for step in steps:
        watch(step)
        services.step(*step)
        services.check()
    watch(("end", 0, 0))
    services.end()
    return services


@pytest.mark.parametrize("mode", [NON_BLOCKING, OPTIMISTIC])
@pytest.mark.parametrize("seed", range(3))
def test_services_in_any_order_show_what_was_written(tmp_path: Path, seed: int, mode: str) -> None:
    run(tmp_path, mode, steps_of(seed, 40), print)


@pytest.mark.long
@pytest.mark.parametrize("mode", [NON_BLOCKING, OPTIMISTIC])
@pytest.mark.parametrize("seed", [*range(100, 130), 301])  # 301: the past needs a compacted log that is gone
def test_services_in_any_order_show_what_was_written_for_long(tmp_path: Path, seed: int, mode: str) -> None:
    run(tmp_path, mode, steps_of(seed, 80), print)
