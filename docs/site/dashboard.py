"""The Grafana dashboard as its panels' queries, and a Prometheus that answers them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

DASHBOARD = Path(__file__).parents[1] / "grafana" / "dashboard.json"
_LABEL = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True)
class Target:
    """One query of a panel; Grafana writes the labels of a series into its `legend`."""

    expression: str
    legend: str

    def query(self, interval: str) -> str:
        """What Prometheus is asked, for all tables, with rates over this interval."""
        return self.expression.replace("$table", ".*").replace("$__rate_interval", interval)

    def labels(self) -> set[str]:
        """The labels that the legend names."""
        return set(_LABEL.findall(self.legend))

    def name_of(self, labels: Mapping[str, str]) -> str:
        """What the legend says of a series."""
        return _LABEL.sub(lambda found: labels.get(found[1], ""), self.legend)


@dataclass(frozen=True)
class Panel:
    """One panel; `place` is its x, y, width and height, in a grid of 24 columns."""

    title: str
    unit: str
    place: tuple[int, int, int, int]
    targets: tuple[Target, ...]


def panels() -> Iterator[Panel]:
    """The panels in their order."""
    for one in json.loads(DASHBOARD.read_text())["panels"]:
        x, y, width, height = (one["gridPos"][name] for name in "xywh")
        targets = tuple(Target(target["expr"], target["legendFormat"]) for target in one["targets"])
        yield Panel(one["title"], one["fieldConfig"]["defaults"]["unit"], (x, y, width, height), targets)


class Prometheus:
    """A server on a port of this machine, asked by its HTTP interface."""

    def __init__(self, port: int) -> None:
        self._place = f"http://127.0.0.1:{port}/api/v1"

    def ask(self, what: str, **parameters: object) -> Any:
        with urlopen(f"{self._place}/{what}?{urlencode(parameters)}", timeout=10) as answer:
            return json.load(answer)["data"]

    def names(self) -> set[str]:
        """The names of all metrics; none while it is not up yet."""
        with suppress(URLError, ConnectionError):
            return set(self.ask("label/__name__/values"))
        return set()
