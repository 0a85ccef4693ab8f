"""docs/walk.md, from its beginning to its end, on a Redis and a Prometheus of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from lake import Lake, Session, without_pip

import lakelatch
from lakelatch.retry import Backoff, tries
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.ports import free_port
from lakelatch.testing.servers import open_server

REDIS, PROMETHEUS, WRITER = 6379, 9091, 9464  # on the page
LIMIT_S = 60


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A folder, where the Redis of the page is one that was just started."""
    with closing(open_server("redis", tmp_path_factory.mktemp("redis"))) as server:
        ports = {REDIS: server.port, PROMETHEUS: free_port(), WRITER: free_port()}
        yield Lake(tmp_path_factory.mktemp("lake"), ports, {"COLUMNS": "1000"})


@pytest.fixture(scope="module")
def session(lake: Lake) -> Iterator[Session]:
    """A session that has made the table of the page before, whose locks were moved as this page does."""
    with lake.session() as opened:
        table_made, *_ = lake.blocks("start.md", "python")
        assert "'price': 10.0" in said(opened, table_made)
        said_of_locks, moved, said_at_last = [run(lake, one) for one in without_pip(lake.walk().moves)]
        assert "locks of the table: filesystem" in said_of_locks
        assert re.search("the table's locks are 'redis #[0-9a-f]+'; writers with others are refused", moved)
        assert re.search("locks of the table: redis #([0-9a-f]+); looked at: redis #\\1\n", said_at_last)
        yield opened


def said(session: Session, block: str) -> str:
    return "".join(answer for _, answer in session.run(block))


def run(lake: Lake, command: str, code: int = 0) -> str:
    """What a command of the page prints; it ends with this code."""
    done = lake.run(command)
    assert done.returncode == code, done.stdout
    return done.stdout


def test_after_a_move_of_its_locks_a_table_is_written_by_who_says_nothing_and_not_by_who_says_the_old_ones(
    lake: Lake, session: Session
) -> None:
    walk = lake.walk()
    assert "CommitResult" in said(session, walk.writes)
    refused = said(session, walk.is_refused)
    assert "WrongLocks: [LAKELATCH-INVALID] this table's writers take their locks from 'redis #" in refused
    assert "and this one from 'filesystem" in refused and "hoodie.write.lock.redis.url" in refused
    rows = "print(prices.to_arrow(where=\"symbol = 'ABC'\").to_pylist())"
    assert said(session, rows) == "[{'symbol': 'ABC', 'at': 5, 'price': 14.0}]\n"


def test_the_doctor_finds_the_wrong_database(lake: Lake, session: Session) -> None:
    (command,) = without_pip(lake.walk().doctor)
    found = run(lake, command, code=1)
    assert "other-locks\n" in found and "lakelatch locks migrate" in found


@pytest.mark.long
def test_the_alert_of_writers_that_die_fires(lake: Lake, session: Session) -> None:
    walk = lake.walk()
    assert set(walk.files) == {"writer.py", "dying.py", "prometheus.yml"}
    lake.save(walk)
    block = "\n".join(without_pip(walk.alert))
    output = lake.folder / "shell.txt"
    with output.open("w") as file, lake.started(["bash", "-c", block], stdout=file, stderr=file) as shell:
        shell.wait()
        firing: set[tuple[str, str]] = set()
        for _ in tries(REAL_SYSTEM, Backoff(0.5, 0.5), limit_s=LIMIT_S):
            firing = alerts(lake.ports[PROMETHEUS])
            if firing:
                break
    assert {name for name, _ in firing} == {"LakelatchWritersDie"}, output.read_text()
    assert {Path(table).name for _, table in firing} == {"prices"}
    prices = lakelatch.open(str(lake.folder / "prices")).to_arrow()
    assert 9 not in prices["at"].to_pylist() and max(prices["at"].to_pylist()) >= 100


def alerts(port: int) -> set[tuple[str, str]]:
    """The alerts that fire, each with its table."""
    with suppress(URLError, ConnectionError), urlopen(f"http://127.0.0.1:{port}/api/v1/alerts", timeout=10) as answer:
        found = json.load(answer)["data"]["alerts"]
        return {
            (one["labels"]["alertname"], one["labels"].get("lakelatch_table", ""))
            for one in found
            if one["state"] == "firing"
        }
    return set()
