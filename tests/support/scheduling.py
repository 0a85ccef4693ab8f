"""Which process of pytest-xdist runs which tests: whole files, and those of Spark where a session is warm already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

#: Where tests share the session of their process.
WITH_SPARK = ("tests/spark/", "tests/interop/", "tests/adversary/test_through_spark.py", "tests/docs/test_blocks.py")


class Scheduling(LoadFileScheduling):
    """Every other process takes tests of Spark first, and the rest other ones, for as long as there are such.

    A process spends more on its first tests of Spark than on all that follow: to start Java, to compile Spark's code,
    and to import what each kind of Python workers needs.
    """

    def __init__(self, config: pytest.Config, log: Any, unit_of: Callable[[str], str]) -> None:
        super().__init__(config, log)
        self._unit_of = unit_of

    def _split_scope(self, nodeid: str) -> str:
        return self._unit_of(super()._split_scope(nodeid))

    def _assign_work_unit(self, node: WorkerController) -> None:
        wants_spark = int(node.gateway.id.removeprefix("gw")) % 2 == 0
        fitting = (unit for unit in self.workqueue if unit.startswith(WITH_SPARK) == wants_spark)
        unit = next(fitting, None)
        if unit is not None:
            self.workqueue.move_to_end(unit, last=False)
        super()._assign_work_unit(node)
