"""Each file of attacked tables is damaged: what is read then is an error that names the file, or the oracle's rows."""

from __future__ import annotations

import random  # noqa: TID251  (seeded)
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from attack import Attack
from looks import in_order, plain
from plain_oracle import Values

from lakelatch.engine.options.read import BEGIN_INSTANT, END_INSTANT, INCREMENTAL, QUERY_TYPE
from lakelatch.engine.read.plan import plan_read
from lakelatch.errors import CorruptTable, InvalidRequest, Unavailable

# One of each type, with clusterings, compactions, overwrites, deletes and a history that was archived.
STEPS = ["upsert", "bulk_insert", "delete", "compact", "upsert", "overwrite", "upsert", "cluster", "delete", "upsert"]
LATER = ["compact_logs", "compact", "upsert", "upsert_and_delete", "archive", "upsert", "delete"]
SEEDS = {"merged on read": 215, "copied on write": 315, "with column groups": 337}
APART = (".hoodie/.lakelatch/locks", ".hoodie/.heartbeat", ".hoodie/.aux", ".hoodie/.temp")
GONE = "without"  # of whose completed file only what it has replaced may tell
Damage = Callable[[bytes, random.Random], bytes]


def flipped(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]


def cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data))]


DAMAGES: dict[str, Damage] = {"flipped": flipped, "cut": cut, "emptied": lambda data, _: b""}


@dataclass
class Damaged:
    """A table that was attacked, as it is and with one file damaged at a time."""

    attack: Attack
    root: Path
    counts: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, root: Path, seed: int) -> Damaged:
        attacked = Attack.of(str(root), seed)
        for kind in [*STEPS, *LATER]:
            attacked.step(kind)
        return cls(attacked, root)

    def files(self) -> list[Path]:
        found = (file for file in sorted(self.root.rglob("*")) if file.is_file() and file.stat().st_size)
        return [file for file in found if not str(file.relative_to(self.root)).startswith(APART)]

    def reads(self) -> dict[str, tuple[dict[str, str], list[Values]]]:
        """Options of reads, and the rows that they have to give."""
        moments = self.attack.oracle.moments
        old, late = moments[len(moments) // 2], moments[-2]
        window = {QUERY_TYPE: INCREMENTAL, BEGIN_INSTANT: old.completion, END_INSTANT: late.completion}
        return {
            "now": ({}, moments[-1].rows()),
            "as of": ({"as.of.instant": old.completion}, old.rows()),
            "between": (window, late.rows(old.completion)),
        }

    def check(self, file: Path, damage: str) -> list[str]:
        """What is wrong with what is read beside a file that was damaged like this."""
        path, problems = str(file.relative_to(self.root)), []
        verified = {"lakelatch.read.verify": "true"} if damage == GONE else {}  # else only what costs nothing
        for kind, (options, expected) in self.reads().items():
            try:
                found = rows_of(str(self.root), {**options, **verified})
            except (CorruptTable, Unavailable) as error:
                self.counts[f"{kind}: {type(error).__name__}"] += 1
                if not named_in(path, error) and not (damage == GONE and path.startswith(".hoodie/timeline")):
                    problems.append(f"{kind}, {damage} {path}: the error does not name it: {error}")
            except InvalidRequest as error:
                if "hoodie.properties" not in path:
                    problems.append(f"{kind}, {damage} {path}: {error}")
                self.counts[f"{kind}: InvalidRequest"] += 1
            else:
                self.counts[f"{kind}: read"] += 1
                if in_order(found) != in_order(expected):
                    problems.append(f"{kind}, {damage} {path}: {len(found)} rows that are not those")
        return problems


def named_in(path: str, error: Exception) -> bool:
    """An error names a file, or the instant or the folder that it is of where the file itself is not known."""
    name = path.rpartition("/")[2]
    return name in str(error) or path.rpartition("/")[0].rpartition("/")[2] in str(error)


def rows_of(path: str, options: dict[str, str]) -> list[Values]:
    plan = plan_read(path, options)
    batches = [batch for one in plan.slices for batch in plan.read(one)]
    found: list[dict[str, Any]] = pa.Table.from_batches(batches, plan.schema).to_pylist()
    return plain(found)


@pytest.fixture(scope="module", params=SEEDS)
def damaged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    return Damaged.of(tmp_path_factory.mktemp("damaged") / "t", SEEDS[request.param])


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)], ids=["one kind", "every kind"])
def test_beside_each_damaged_file_rows_are_right_or_an_error_names_it(damaged: Damaged, every: bool) -> None:
    """Of each file one kind of damage is tried, or all."""
    damaged.counts.clear()
    files, problems = damaged.files(), []
    chance = random.Random(0)
    for number, file in enumerate(files):
        data = file.read_bytes()
        for name in DAMAGES if every else [list(DAMAGES)[number % len(DAMAGES)]]:
            file.write_bytes(DAMAGES[name](data, chance))
            problems += damaged.check(file, name)
        file.write_bytes(data)
    print(f"{len(files)} files: {sorted(damaged.counts.items())}")
    assert problems == []
    assert len(files) > 30 and all(damaged.counts[f"{kind}: CorruptTable"] > 3 for kind in damaged.reads())
    assert all(damaged.counts[f"{kind}: read"] > 10 for kind in damaged.reads())
    assert damaged.check(damaged.root / "nothing", "not damaged") == []


def test_beside_each_file_that_is_gone_rows_are_right_or_an_error_names_it(damaged: Damaged) -> None:
    damaged.counts.clear()
    problems = []
    for file in damaged.files():
        data = file.read_bytes()
        file.unlink()
        problems += damaged.check(file, GONE)
        file.write_bytes(data)
    print(sorted(damaged.counts.items()), *problems, sep="\n")
    assert problems == []
    assert all(damaged.counts[f"{kind}: read"] > 10 for kind in damaged.reads())
