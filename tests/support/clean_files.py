"""Cleans of another engine: ours say in their plans who has made them."""

from __future__ import annotations

from collections.abc import Sequence

from lakelatch.timeline.plans.clean_plan import CleanMetadata, CleanPlan


def clean_plan(paths: Sequence[str]) -> CleanPlan:
    """That of a clean which is to remove these files."""
    files: dict[str, tuple[str, ...]] = {}
    for path in paths:
        partition, _, name = path.rpartition("/")
        files[partition] = (*files.get(partition, ()), name)
    return CleanPlan(files, "KEEP_LATEST_COMMITS")


def clean_metadata(clean: str, paths: Sequence[str]) -> bytes:
    """That of a completed clean which has removed these files."""
    return CleanMetadata(clean, clean_plan(paths)).to_avro()
