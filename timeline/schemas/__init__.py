"""Avro schemas of Hudi's timeline files: one `.avsc` file each, field by field in Hudi's order."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import fastavro


def _load(name: str) -> Any:
    text = files(__name__).joinpath(f"{name}.avsc").read_text(encoding="utf-8")
    return fastavro.parse_schema(json.loads(text))


COMMIT_METADATA = _load("HoodieCommitMetadata")
REPLACE_COMMIT_METADATA = _load("HoodieReplaceCommitMetadata")
COMPACTION_PLAN = _load("HoodieCompactionPlan")
ROLLBACK_PLAN = _load("HoodieRollbackPlan")
ROLLBACK_METADATA = _load("HoodieRollbackMetadata")
