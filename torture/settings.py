"""The options of a torture run; checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from lakelatch.errors import InvalidRequest
from lakelatch.locks.options import FILESYSTEM_PATH

LYING = "lying"
#: The roles of clients, each with the option that says how many there are.
ROLES = {
    "transfer": "transfers",
    "append": "appends",
    "compact": "compactors",
    "serve": "keepers",
    "cancel": "cancellers",
    "tail": "tails",
    "snapshot": "snapshots",
    "spark": "spark",
    "move": "moves",
    "cut": "cuts",
}
#: Those that work on all tables of a round, where it has several. Each of the others works on one of them.
OF_SEVERAL = ("move", "cut")
#: Lock providers that many processes can share, and one that grants everything to all.
PROVIDERS = ("filesystem", "zookeeper", "redis", "etcd", "dynamodb", "storage", LYING)
STORES = ("", "s3")  # where tables lie: on disks, or in an object store
COMMITS_RETAINED = 20  # by cleans: a reader that takes longer than as many commits may find that a file has gone
_LEASE_MIN_S, _LEASE_MAX_S = 1.0, 60.0


@dataclass(frozen=True)
class TortureSettings:
    """One run: `minutes` of faults on each provider, in rounds of `round_s`, each on a table of its own.

    `pace_s` is the mean time between two faults. Clients are processes; Spark writers need about a GiB each. Of
    several `tables` the clients of a role get one each, in turn; moves and cuts work on all of them.
    """

    providers: tuple[str, ...] = ("filesystem",)
    minutes: float = 2.0
    seed: int = 0
    round_s: float = 60.0
    lease_s: float = 2.0
    pace_s: float = 1.0
    transfers: int = 3
    appends: int = 3
    compactors: int = 1
    keepers: int = 2
    cancellers: int = 1
    tails: int = 1
    snapshots: int = 1
    spark: int = 0
    moves: int = 3
    cuts: int = 1
    tables: int = 1
    keep: bool = False
    store: str = ""

    def __post_init__(self) -> None:
        for provider in self.providers:
            if provider not in PROVIDERS:
                raise InvalidRequest(
                    f"--provider {provider}: no such one, use {', '.join(PROVIDERS)}", option="--provider"
                )
        if not self.providers:
            raise InvalidRequest(f"--provider: name at least one of {', '.join(PROVIDERS)}", option="--provider")
        if self.store not in STORES:
            raise InvalidRequest(
                f"--store {self.store}: no such one, use {', '.join(filter(None, STORES))}", option="--store"
            )
        for name, least, most in (
            ("minutes", 0.05, 100_000),
            ("round_s", 2, 3600),
            ("lease_s", _LEASE_MIN_S, _LEASE_MAX_S),
            ("pace_s", 0.05, 3600),
            ("tables", 1, 8),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                said = f"--{name.replace('_', '-')}"
                raise InvalidRequest(f"{said} {value:g}: use {least:g} to {most:g}", option=said)
        for name in ROLES.values():
            if not 0 <= getattr(self, name) <= 64:
                raise InvalidRequest(f"--{name} {getattr(self, name)}: use 0 to 64", option=f"--{name}")
        if not self.transfers + self.appends + self.spark:
            raise InvalidRequest(
                "--transfers, --appends and --spark are all 0: a client has to write", option="--transfers"
            )
        if self.tables > 1 and max(self.transfers, self.appends) < self.tables:
            raise InvalidRequest(
                f"--tables {self.tables}: each table needs a writer of its own: let --transfers or --appends be as "
                "many",
                option="--tables",
            )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> TortureSettings:
        return cls(**{**values, "providers": tuple(values["providers"])})


@dataclass(frozen=True)
class Place:
    """The place and settings of one round's clients; passed to their processes.

    `lock_options` differ between clients, as each reaches the lock service by its own proxy. In an object store the
    table is at `uri`, which `place_options` reach, and is copied into the folder when the round has ended. Of several
    `tables` this is the one of that `number`; `at` gives another one.
    """

    folder: Path
    provider: str
    lease_s: float
    seed: int
    uri: str = ""
    place_options: Mapping[str, str] = field(default_factory=dict)
    tables: int = 1
    number: int = 0

    def at(self, number: int) -> Place:
        """The place of another table of the round."""
        uri = self.uri.removesuffix(self._suffix)
        found = replace(self, number=number)
        return replace(found, uri=f"{uri}{found._suffix}") if uri else found

    @property
    def all_tables(self) -> tuple[Place, ...]:
        return tuple(self.at(number) for number in range(self.tables))

    @property
    def _suffix(self) -> str:
        return f"-{self.number + 1}" if self.number else ""

    @property
    def table(self) -> Path:
        return self.folder / f"table{self._suffix}"

    @property
    def table_uri(self) -> str:
        """The table as all clients name it."""
        return self.uri or f"file://{self.table}"

    @property
    def more_options(self) -> dict[str, str]:
        """The options of every client apart from its proxy: where the table is, and the kernel's locks."""
        return {**self.place_options, FILESYSTEM_PATH: str(self.folder / "locks")} if self.uri else {}

    @property
    def kept(self) -> Path:
        """Data files that services have removed, for the checker."""
        return self.folder / f"kept{self._suffix}"

    @property
    def history(self) -> Path:
        return self.folder / "history"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def late_s(self) -> float:
        """The time within which late requests arrive."""
        return 2 * self.lease_s
