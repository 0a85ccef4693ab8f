"""Opens the time generator that the options name."""

from __future__ import annotations

from collections.abc import Mapping

from lakelatch.errors import InvalidRequest
from lakelatch.locks.contract import LockProvider
from lakelatch.option_values import Option, stripped
from lakelatch.plugins import find_component
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timegen.contract import TimeGenerator
from lakelatch.timegen.skew_adjusting import SKEW_OPTION, parse_skew

TIME_GENERATORS = "lakelatch.time_generators"
TYPE_OPTION = "hoodie.time.generator.type"
_TYPE = Option(TYPE_OPTION, stripped, "hybrid")
TIME_GENERATOR_OPTIONS = (_TYPE, Option(SKEW_OPTION, parse_skew, None))


def open_time_generator(
    options: Mapping[str, str], provider: LockProvider, system: System = REAL_SYSTEM
) -> TimeGenerator:
    """Constructs the generator that `hoodie.time.generator.type` names; `hybrid` if it is not set.

    It is constructed with the provider and the system; further options are those of the provider's scope.

    Errors: `InvalidRequest`, with the nearest known name and what is installed.
    """
    name = _TYPE.of(options)
    generator = find_component(TIME_GENERATORS, name, "time generator", TYPE_OPTION)(provider, system)
    if not isinstance(generator, TimeGenerator):
        raise InvalidRequest(
            f"{TYPE_OPTION}={name!r} made a {type(generator).__name__}, which is no TimeGenerator: choose another one",
            option=TYPE_OPTION,
        )
    return generator
