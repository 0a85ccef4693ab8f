"""All keys of table services."""

from __future__ import annotations

from lakelatch.engine.options import archiving, cancellation, cleaning, clustering, compaction, inline

SERVICE_KEYS = frozenset().union(
    archiving.KEYS,
    cancellation.KEYS,
    cleaning.KEYS,
    clustering.KEYS,
    compaction.KEYS,
    inline.KEYS,
)
