"""Where a name is noted: a few records with many names each, because records that tokens depend on stay for ever."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any

from lakelatch.locks.contract import TABLE_KEY
from lakelatch.locks.records.store import Record, field

LOCKS, QUEUES, REGISTERS, IDS = "locks/", "queues/", "registers/", "ids/"
_SLOTS = 64
_PLAIN = re.compile(r"[a-z0-9_]{1,40}")


@dataclass(frozen=True)
class Entry:
    """The holder of a name, as its slot says."""

    session: str
    request: str
    token: int
    since_ms: int


def slots_of_table(table: str) -> list[str]:
    """The records of all names of a table."""
    return [f"{LOCKS}{table}/{slot}" for slot in (TABLE_KEY, *(f"{number:02x}" for number in range(_SLOTS)))]


@lru_cache(maxsize=1024)  # whoever waits for a name asks at each look
def slot_of(name: str) -> str:
    """The record that says who holds a name."""
    table, found, key = name.partition("/=")
    if not found:
        return f"{LOCKS}other/{_digest(name)}"
    slot = TABLE_KEY if key == TABLE_KEY else f"{sha256(key.encode()).digest()[0] % _SLOTS:02x}"
    return f"{LOCKS}{table}/{slot}"


def queue_of(name: str) -> str:
    """The record of who waits for a name, or for another one of its slot."""
    return QUEUES + slot_of(name).removeprefix(LOCKS)


def register_of(name: str) -> str:
    """The record of a register, readable if its key is a plain word."""
    table, found, key = name.partition("/=")
    if not found:
        return f"{REGISTERS}other/{_digest(name)}"
    return f"{REGISTERS}{table}/{key if _PLAIN.fullmatch(key) else _digest(key)}"


def id_of(name: str) -> str:
    """The record of the id that is kept for a table's locks, by the name of the table's key."""
    return IDS + slot_of(name).removeprefix(LOCKS)


def _digest(text: str) -> str:
    """Stands for any text in a record's name; no plain word looks like it."""
    return "-" + sha256(text.encode()).hexdigest()[:32]


def entry_of(held: Mapping[str, Any], name: str) -> Entry | None:
    """A name's entry in its slot, None if there is none."""
    found = held.get(name)
    if found is None:
        return None
    entry = Record(found if isinstance(found, dict) else {}, "")
    texts = [field(entry, part, str, name) for part in ("session", "request")]
    return Entry(texts[0], texts[1], field(entry, "token", int, name), field(entry, "since_ms", int, name))
