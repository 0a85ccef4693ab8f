"""What three readers make of a table, compared with an oracle and with each other."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from random_tables.oracle import BEGINNING, Key, Moment, Values, in_column
from random_tables.table import RandomTable

# What hudi-rs 0.5.0 says of log files that lack a column and hold narrower values of another one.
NOT_WIDENED = re.compile(r"column '\w+' has type \w+ but the table schema expects")
Read = Callable[..., list[dict[str, Any]]]


@dataclass
class Readers:
    """Three readers, who have to agree with the oracle and, meta columns included, with each other."""

    by_spark: Read
    by_arrow: Read
    by_hudi_rs: Read

    def check(self, table: RandomTable, everything: bool = False) -> None:
        """The snapshot, and one time and one window of the past, or all of them without Spark."""
        moments = table.oracle.moments
        pairs = [(begin, end) for index, end in enumerate(moments) for begin in [None, *moments[:index]]]
        self._check_snapshot(table)
        for moment in moments if everything else [table.chance.choice(moments)]:
            self._check_moment(table, moment, with_spark=not everything)
        for begin, end in pairs if everything else [table.chance.choice(pairs)]:
            self._check_window(table, begin.completion if begin else BEGINNING, end, with_spark=not everything)

    def _check_snapshot(self, table: RandomTable) -> None:
        found = self.by_arrow(table.path)
        assert _values(found, table) == table.oracle.moments[-1].rows(), "Arrow's snapshot"
        assert self.by_spark(table.path) == found, "Spark's snapshot"
        self._check_hudi_rs(table, found, "snapshot")

    def _check_moment(self, table: RandomTable, moment: Moment, with_spark: bool) -> None:
        options = {"as.of.instant": moment.completion}
        found = self.by_arrow(table.path, options)
        assert _values(found, table) == moment.rows(), f"Arrow as of {moment.completion}"
        assert not with_spark or self.by_spark(table.path, options) == found, f"Spark as of {moment.completion}"
        self._check_hudi_rs(table, found, f"as of {moment.completion}", as_of=moment.completion)

    def _check_window(self, table: RandomTable, begin: str, end: Moment, with_spark: bool) -> None:
        options: Mapping[str, str] = {
            "hoodie.datasource.query.type": "incremental",
            "hoodie.datasource.read.begin.instanttime": begin,
            "hoodie.datasource.read.end.instanttime": end.completion,
        }
        window = f"({begin}, {end.completion}]"
        found = self.by_arrow(table.path, options)
        assert _values(found, table) == end.rows(begin), f"Arrow of {window}"
        assert not with_spark or self.by_spark(table.path, options) == found, f"Spark of {window}"
        older = {key for key, version in end.versions.items() if version.completion <= begin}
        self._check_hudi_rs(table, found, window, older, since=(begin, end.completion))

    def _check_hudi_rs(
        self, table: RandomTable, ours: list[Values], what: str, more: Collection[Key] = (), **asked: Any
    ) -> None:
        """hudi-rs reads the past with the columns of now, and may read `more` keys.

        These are of rows that lose to something older than a window, as the files of the window alone do not tell.
        """
        now = table.oracle.moments[-1].columns
        expected = [{**dict.fromkeys(now), **row} for row in ours]
        for row in expected:
            row.update({name: in_column(row[name], kind) for name, kind in now.items()})
        try:
            found = self.by_hudi_rs(table.path, **asked)
        except Exception as error:
            assert NOT_WIDENED.search(str(error)), f"hudi-rs, {what}: {error!r}"
            return
        key_of, unsure = table.oracle.key_of, table.deleted_out_of_order
        found = [row for row in found if key_of(row) not in unsure and (row in expected or key_of(row) not in more)]
        expected = [row for row in expected if key_of(row) not in unsure]
        both = [[row for row in rows if row not in others] for rows, others in ((found, expected), (expected, found))]
        assert found == expected, f"hudi-rs, {what}: {both[0]}, and here {both[1]}"


def _values(rows: list[Values], table: RandomTable) -> list[Values]:
    """Without meta columns, in the order of keys."""
    plain = [{name: row[name] for name in row if not name.startswith("_hoodie_")} for row in rows]
    return sorted(plain, key=table.oracle.key_of)
