"""Archiving, for callers who have a path and options."""

from __future__ import annotations

from collections.abc import Mapping

from lakelatch.services import archiving
from lakelatch.services.archiving import Archived
from lakelatch.spark.services.plans import table_at_rest
from lakelatch.system import REAL_SYSTEM, System


def archive(path: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM) -> Archived:
    """Moves completed instants from a table's active timeline into Hudi's history; needs no Spark session.

    What has to stay for the sake of any reader or writer stays, and `held_by` says what is first in the way. Writers,
    readers and other services go on meanwhile. Errors: those of `services.archiving.archive`, and `InvalidRequest` for
    options, and for a table that may only be read.
    """
    with table_at_rest(path, options, system) as (table, manager, parsed):
        return archiving.archive(manager, table.config, parsed.archiving)
