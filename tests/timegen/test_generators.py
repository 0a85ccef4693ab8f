from __future__ import annotations

from lakelatch.locks.contract import LockScope
from lakelatch.locks.filesystem.provider import FilesystemLockProvider
from lakelatch.locks.in_process import InProcessLockProvider
from lakelatch.system import System
from lakelatch.testing.conformance.time_generator import TimeGeneratorConformance
from lakelatch.timegen.contract import TimeGenerator
from lakelatch.timegen.hybrid import HybridTimeGenerator
from lakelatch.timegen.skew_adjusting import SkewAdjustingTimeGenerator


class TestHybrid(TimeGeneratorConformance):
    def make_generator(self, table_uri: str, system: System) -> TimeGenerator:
        return HybridTimeGenerator(FilesystemLockProvider(LockScope(table_uri, {}, system)), system)


class TestHybridInProcess(TimeGeneratorConformance):
    across_processes = False

    def make_generator(self, table_uri: str, system: System) -> TimeGenerator:
        return HybridTimeGenerator(InProcessLockProvider(LockScope(table_uri, {}, system)), system)


class TestSkewAdjusting(TimeGeneratorConformance):
    def make_generator(self, table_uri: str, system: System) -> TimeGenerator:
        return SkewAdjustingTimeGenerator(FilesystemLockProvider(LockScope(table_uri, {}, system)), system, 5)


class TestSkewAdjustingInProcess(TimeGeneratorConformance):
    across_processes = False

    def make_generator(self, table_uri: str, system: System) -> TimeGenerator:
        return SkewAdjustingTimeGenerator(InProcessLockProvider(LockScope(table_uri, {}, system)), system)
