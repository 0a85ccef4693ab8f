"""From the write options to a time generator."""

from __future__ import annotations

from collections.abc import Mapping

from lakelatch.errors import InvalidRequest
from lakelatch.locks.contract import LockProvider
from lakelatch.locks.in_process import InProcessLockProvider
from lakelatch.locks.registry import find_component
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timegen.contract import TimeGenerator
from lakelatch.timegen.skew_adjusting import DEFAULT_SKEW_MS, SkewAdjustingTimeGenerator

TYPE_OPTION = "hoodie.time.generator.type"
SKEW_OPTION = "hoodie.time.generator.max_expected_clock_skew_ms"
GROUP = "lakelatch.time_generators"


def open_time_generator(
    options: Mapping[str, str], provider: LockProvider, system: System = REAL_SYSTEM
) -> TimeGenerator:
    """The generator that hoodie.time.generator.type names; `hybrid` by default."""
    kind = find_component(GROUP, options.get(TYPE_OPTION, "hybrid"), "time generator", TYPE_OPTION)
    if not issubclass(kind, TimeGenerator):
        raise InvalidRequest(f"{TYPE_OPTION}={options.get(TYPE_OPTION)!r} is {kind.__name__}, no TimeGenerator")
    if issubclass(kind, SkewAdjustingTimeGenerator):
        default = 1 if isinstance(provider, InProcessLockProvider) else DEFAULT_SKEW_MS
        text = options.get(SKEW_OPTION, str(default))
        if not text.isdigit() or not 0 < int(text) <= 60_000:
            raise InvalidRequest(f"{SKEW_OPTION}={text!r}: use 1 to 60000 milliseconds")
        return kind(provider, system, int(text))
    return kind(provider, system)
