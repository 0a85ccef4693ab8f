"""What a session of Spark was handed once, for all of its queries that need the same again.

Handing Spark a table takes forty calls of the JVM, a third of what planning a small query needs. Frames refer to their
session, so a mapping of this module would keep every session alive, also weakly keyed: the session itself has what it
was handed, and both go together, whether it is a classic one or one of Spark Connect.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, TypeVar

from lakelatch.system import REAL_SYSTEM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

V = TypeVar("V")

_KEPT_MAX = 16  # some megabytes each, for a hundred million rows
_ATTRIBUTE = "_lakelatch_handed"
_guard = REAL_SYSTEM.new_lock()


def handed_once(spark: SparkSession, what: Hashable, hand: Callable[[], V]) -> V:
    """What `hand` has made of `what` for this session, which holds the last of both. Threads share it.

    Two that ask at once may both hand it over; the later one is kept.
    """
    with _guard:
        kept: OrderedDict[Hashable, Any] = vars(spark).setdefault(_ATTRIBUTE, OrderedDict())
        if what in kept:
            kept.move_to_end(what)
            found: V = kept[what]
            return found
    made = hand()
    with _guard:
        kept[what] = made
        while len(kept) > _KEPT_MAX:
            kept.popitem(last=False)
    return made
