"""What the lock benchmarks share: servers, options, medians, and tables on standard output."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.harness import RESULTS, Result, save

from lakelatch.locks.contract import LockProvider, LockScope
from lakelatch.locks.open import open_lock_provider
from lakelatch.locks.options import FILESYSTEM_PATH, PREFIX, PROVIDER
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.servers import Server, open_server
from lakelatch.testing.servers.redis import LocalRedis
from lakelatch.testing.servers.seaweedfs import BUCKET, S3_ENVIRONMENT

BACKENDS = ("filesystem", "redis", "zookeeper", "etcd", "dynamodb", "storage")
REDIS_SYNCED = "redis_synced"  # every write is on the disk before it is answered; plain redis syncs once a second
LEASE_S = 10.0
_SERVERS = {"redis": "redis", "zookeeper": "zookeeper", "etcd": "etcd", "dynamodb": "dynamodb", "storage": "seaweedfs"}


class NotHere(Exception):
    """A backend or a peer that cannot be measured on this machine; its text says why."""


@dataclass(frozen=True)
class Place:
    """Where one backend is reached, and a table that nobody else has there."""

    backend: str
    folder: str
    label: str
    table_uri: str
    host: str = ""
    port: int = 0

    def options(self, lease_s: float) -> dict[str, str]:
        """As a user writes them."""
        address = f"{self.host}:{self.port}"
        special = {
            "filesystem": {FILESYSTEM_PATH: f"{self.folder}/locks"},
            "redis": {"redis.url": f"redis://{address}/0"},
            "zookeeper": {"zookeeper.url": address},
            "etcd": {"etcd.url": f"http://{address}"},
            "dynamodb": {
                "dynamodb.endpoint_url": f"http://{address}",
                "dynamodb.table": "bench",
                "dynamodb.region": "us-east-1",
            },
            "storage": {"storage.url": f"s3://{BUCKET}/locks"},
        }[self.backend]
        options = {key if key.startswith(PREFIX) else PREFIX + key: value for key, value in special.items()}
        return {**options, PROVIDER: self.backend, "lakelatch.lock.lease_s": f"{lease_s:g}"}

    def open_provider(self, lease_s: float = LEASE_S, more: Mapping[str, str] | None = None) -> LockProvider:
        return open_lock_provider(LockScope(self.table_uri, {**self.options(lease_s), **(more or {})}))


class Contender:
    """One lock of one library, as one process sees it. Two contenders of one key are never held at once."""

    def acquire(self, timeout_s: float) -> bool:
        """False at the deadline."""
        raise NotImplementedError

    def release(self) -> None:
        raise NotImplementedError

    def held(self) -> bool | None:
        """What the lock says of itself without asking its server; None if it says nothing."""
        return None

    def requests(self) -> tuple[int, int] | None:
        """The reads and the writes that were sent so far, renewals and refused ones included; None if not counted."""
        return None


@contextmanager
def open_place(label: str) -> Iterator[Place]:
    """A fresh server and folder for one backend, gone afterwards. Errors: `NotHere`."""
    backend = "redis" if label == REDIS_SYNCED else label
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="bench-") as folder:
        if backend not in _SERVERS:
            yield Place(backend, folder, label, f"file://{folder}/table")
            return
        server = _open_server(label, Path(folder) / "server")
        try:
            place = Place(backend, folder, label, f"s3://{BUCKET}/{REAL_SYSTEM.new_id()}", server.host, server.port)
            _set_credentials(place)
            yield place
        finally:
            server.close()


def _open_server(label: str, folder: Path) -> Server:
    try:
        if label == "redis":
            server = LocalRedis(folder, ("--appendfsync", "everysec"))
            server.start()
            return server
        return open_server("redis" if label == REDIS_SYNCED else _SERVERS[label], folder, kind="local")
    except Exception as error:
        raise NotHere(f"no server: {' '.join(str(error).split()) or type(error).__name__}") from error


def _set_credentials(place: Place) -> None:
    """Clients find keys and address in the environment, which child processes inherit."""
    if place.backend in ("dynamodb", "storage"):
        address = f"http://{place.host}:{place.port}"
        known = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench"}  # DynamoDB Local takes any letters
        os.environ.update(S3_ENVIRONMENT if place.backend == "storage" else known)
        os.environ.update({"AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1"})
        os.environ.update({"AWS_ENDPOINT_URL": address, "AWS_ALLOW_HTTP": "true"})


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all values do not exceed."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def spread(values: Sequence[float]) -> str:
    """The median, and in brackets where the middle half of the values lies."""
    low, high = quartiles(values)
    return f"{short(statistics.median(values))} ({short(low)}-{short(high)})"


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """The first and the third; of one value itself."""
    if len(values) < 2:
        return values[0], values[0]
    cuts = statistics.quantiles(values, n=4, method="inclusive")
    return cuts[0], cuts[2]


def short(value: float | None) -> str:
    """Three figures are all that these measurements are good for."""
    if value is None:
        return ""
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}" if abs(value) >= 0.001 else f"{value:.2g}"


def print_table(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], left_out: Sequence[str]) -> None:
    """Markdown, and a line for each thing that could not be measured."""
    print(f"\n### {title}\n")
    if rows:
        print(f"| {' | '.join(headers)} |\n|{' --- |' * len(headers)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    if rows and left_out:
        print()
    for line in left_out:
        print(f"- left out: {line}")
    sys.stdout.flush()


def main(run: Callable[..., list[Result]], backends: Sequence[str] = BACKENDS) -> None:
    """For `python -m bench.locks.NAME [--quick] [BACKEND ...]`. A quick run is for a look, and is not saved."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds; nothing is saved")
    parser.add_argument("backends", nargs="*", metavar="BACKEND", help=f"some of {', '.join(backends)}")
    chosen = parser.parse_args()
    unknown = sorted(set(chosen.backends) - set(backends))
    if unknown:
        parser.error(f"no backend named {', '.join(unknown)}: there are {', '.join(backends)}")
    results = run(chosen.quick, tuple(chosen.backends) or backends)
    print()
    for result in results:
        verdict = "met" if result.met else "MISSED"
        print(f"{result.name}: {result.value} {result.unit} (goal: {result.goal}: {verdict}; {result.note})")
    if not chosen.quick:
        save(results)
        print(f"written to {RESULTS}")
