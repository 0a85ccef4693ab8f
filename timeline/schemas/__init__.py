"""Avro schemas of Hudi's timeline files: one `.avsc` file each, field by field in Hudi's order."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import fastavro


def _load(name: str) -> Any:
    text = files(__name__).joinpath(f"{name}.avsc").read_text(encoding="utf-8")
    return _sorted(fastavro.parse_schema(json.loads(text)))


def _sorted(schema: Any) -> Any:
    """The same schema with its keys in order: the library's order differs from process to process, in each header."""
    if isinstance(schema, dict):
        return {key: _sorted(value) for key, value in sorted(schema.items())}
    return [_sorted(one) for one in schema] if isinstance(schema, list) else schema


COMMIT_METADATA = _load("HoodieCommitMetadata")
REPLACE_COMMIT_METADATA = _load("HoodieReplaceCommitMetadata")
COMPACTION_PLAN = _load("HoodieCompactionPlan")
ROLLBACK_PLAN = _load("HoodieRollbackPlan")
ROLLBACK_METADATA = _load("HoodieRollbackMetadata")
CLEANER_PLAN = _load("HoodieCleanerPlan")
CLEAN_METADATA = _load("HoodieCleanMetadata")
REQUESTED_REPLACE_METADATA = _load("HoodieRequestedReplaceMetadata")
RESTORE_PLAN = _load("HoodieRestorePlan")
RESTORE_METADATA = _load("HoodieRestoreMetadata")
SAVEPOINT_METADATA = _load("HoodieSavepointMetadata")
