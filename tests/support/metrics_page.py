"""The table of metrics in docs/metrics.md."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
_ROW = re.compile(r"^\| `([\w.]+)` \| `(\w+)` \| ([^|]+) \|([^|]*)\|$", re.MULTILINE)
_LABEL = re.compile(r"`((?:lakelatch|db)\.[\w.]+|error\.type)`")


@dataclass(frozen=True)
class MetricRow:
    """A row: what is measured, under which name Prometheus has it, of which kind, with which labels of its own."""

    name: str
    shown: str
    kind: str
    labels: frozenset[str]


def metric_rows() -> list[MetricRow]:
    """All rows; one whose labels are "the same" has those of the row above it."""
    found: list[MetricRow] = []
    for name, shown, kind, labels in _ROW.findall(PAGE.read_text().partition("\n## Metrics\n")[2]):
        own = found[-1].labels if labels.strip() == "the same" else frozenset(_LABEL.findall(labels))
        found.append(MetricRow(name, shown, kind.partition(":")[0], own))
    return found
