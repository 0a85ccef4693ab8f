"""What the transactions of a run over several tables have read and written, for the checker of isolation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from actors import ACCOUNTS
from statement_checks import statements_of
from tellers import Ledger, Seen

from lakelatch.engine.several.transaction import SERIALIZABLE
from lakelatch.torture.check.isolation import Key, Observed
from lakelatch.torture.check.table_files import TableFiles

Orders = Mapping[Key, Sequence[str]]


def orders_of(tables: Mapping[str, TableFiles]) -> dict[Key, list[str]]:
    """The committed versions of each account, in order: each is named by the instant of the write that made it."""
    found: dict[Key, list[str]] = {(uri, account): [] for uri in tables for account in ACCOUNTS}
    for uri, table in tables.items():
        for commit in table.commits:
            for one in statements_of(table, commit):
                if one["group"] in ACCOUNTS:
                    found[uri, one["group"]].append(commit.instant)
    return found


def observed_of(tables: Mapping[str, TableFiles], ledger: Ledger) -> Iterator[Observed]:
    """Moves between tables, moments that were taken, and what was moved within one table."""
    orders = orders_of(tables)
    done = {(uri, instant) for uri, table in tables.items() for instant in table.by_instant}
    parts = set[tuple[str, str]]()
    for number, move in enumerate(ledger.moves):
        parts.update(move.instants.items())
        yield Observed(
            f"{move.process}'s move {number}",
            {key: last_seen(key, base, orders) for key, base in move.read.items()},
            {key: (instant,) for key, instant in move.wrote.items()},
            move.isolation == SERIALIZABLE,
            any(part in done for part in move.instants.items()),
            move.began_ns,
            move.told_ns if move.outcome == "committed" else None,
        )
    yield from (_moment(number, seen, orders) for number, seen in enumerate(ledger.seen))
    for uri, table in tables.items():
        for commit in table.commits:
            wrote = [one for one in statements_of(table, commit) if one["group"] in ACCOUNTS]
            if wrote and (uri, commit.instant) not in parts:
                keys = {(uri, one["group"]): one["base"] for one in wrote}
                reads = {key: last_seen(key, base, orders) for key, base in keys.items()}
                writes = dict.fromkeys(keys, (commit.instant,))
                yield Observed(f"the transfer {commit.instant} in {uri}", reads, writes)


def last_seen(key: Key, base: Sequence[str], orders: Orders) -> str:
    """The version of an account that is read with all these; one that was never committed, if there is any."""
    turns = {version: turn for turn, version in enumerate(orders[key])}
    return next((one for one in base if one not in turns), max(base, key=turns.__getitem__, default=""))


def _moment(number: int, seen: Seen, orders: Orders) -> Observed:
    there = {
        key: [version for version in versions if (key[0], version) in seen.instants] for key, versions in orders.items()
    }
    reads = {key: versions[-1] if versions else "" for key, versions in there.items()}
    return Observed(f"{seen.process}'s moment {number}", reads, {}, True, True, seen.began_ns, seen.ended_ns)
