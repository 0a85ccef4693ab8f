"""Small writers, two for each table, which go on until they are ended: one table for each lock service.

`writers.py FOLDER PORT SERVER=HOST:PORT...`: tables lie in FOLDER, but for that of `seaweedfs`, which is in the store,
with its locks. Prometheus reads what they measure from PORT. `ready` is printed once each table is there.
"""

from __future__ import annotations

import itertools
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from opentelemetry import metrics
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import start_http_server

import lakelatch
from lakelatch.errors import LakelatchError
from lakelatch.retry import Backoff, tries
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.servers.reach import lock_options
from lakelatch.testing.servers.seaweedfs import BUCKET

ACCOUNTS = 20
PACE_S = 1.0
KEPT_EACH = 20  # commits, after which a writer does what is due
START_S = 120
OPTIONS = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.num.retries.on.conflict.failures": 3,
}


@dataclass(frozen=True)
class Place:
    """Where a server listens."""

    name: str
    host: str
    port: int

    @classmethod
    def of(cls, text: str) -> Place:
        name, _, place = text.partition("=")
        host, _, port = place.rpartition(":")
        return cls(name, host, int(port))


def tables(folder: Path, places: list[Place]) -> dict[str, dict[str, str]]:
    """The options of each table, by its path: one with the kernel's locks, and one for each service."""
    found = {str(folder / "filesystem"): {"hoodie.write.lock.provider": "filesystem"}}
    for place in places:
        path = f"s3://{BUCKET}/storage" if place.name == "seaweedfs" else str(folder / place.name)
        found[path] = lock_options(place)
    return found


def make(path: str, options: dict[str, str]) -> None:
    """Makes the table, as soon as its lock service answers."""
    problem: LakelatchError | None = None
    for _ in tries(REAL_SYSTEM, Backoff(1, 1), limit_s=START_S):
        try:
            table = lakelatch.ArrowTable.create(
                path, "account long, amount long", key="account", buckets=2, if_exists="ignore", options=options
            )
            accounts = range(ACCOUNTS)
            table.insert(pa.table({"account": list(accounts), "amount": [0] * ACCOUNTS}), if_exists="skip")
            return
        except LakelatchError as error:
            problem = error
    raise SystemExit(f"{path} could not be made: {problem}")


def write(path: str, options: dict[str, str], writer: str) -> None:
    """Adds to accounts that others change as well, and keeps the table now and then."""
    table = lakelatch.open(path, {**options, **OPTIONS, "lakelatch.writer.name": writer})
    for number in itertools.count(1):
        try:
            if number % KEPT_EACH == 0:
                table.maintain()
            table.update(f"account < {1 + int(REAL_SYSTEM.random() * ACCOUNTS)}", {"amount": "amount + 1"})
        except LakelatchError as error:
            print(f"{writer}: {str(error)[:200]}", file=sys.stderr, flush=True)
        REAL_SYSTEM.sleep(PACE_S * (0.5 + REAL_SYSTEM.random()))


def main(folder: Path, port: int, places: list[Place]) -> None:
    metrics.set_meter_provider(MeterProvider([PrometheusMetricReader()]))
    start_http_server(port, "0.0.0.0" if places and places[0].host != "127.0.0.1" else "127.0.0.1")
    chosen = tables(folder, places)
    for path, options in chosen.items():
        make(path, options)
    threads = []
    for path, options in chosen.items():
        name = path.rpartition("/")[2]
        for number in (1, 2):
            threads.append(threading.Thread(target=write, args=(path, options, f"{name}-{number}"), daemon=True))
            threads[-1].start()
    print("ready", flush=True)
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), [Place.of(text) for text in sys.argv[3:]])
