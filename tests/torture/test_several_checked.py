"""The checker sees what is wrong with transactions over several tables: each kind of damage is done by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.errors import LakelatchError
from lakelatch.failpoints import active
from lakelatch.storage.local import LocalStorage
from lakelatch.torture.check.checker import OF_SEVERAL, OF_TABLE, find_problems
from lakelatch.torture.check.evidence import Evidence, decisions_in
from lakelatch.torture.check.files import Folder
from lakelatch.torture.check.several import Told
from lakelatch.torture.check.table_files import TIMELINE, TableFiles
from lakelatch.torture.history.reading import History, Line, lines_of_table
from lakelatch.torture.traffic.bank import OPTIONS, SCHEMA, open_bank
from lakelatch.transactions.base.settings import MODE_OPTION, OPTIMISTIC

Files = list[dict[str, bytes]]
_PURSE = "purse-0"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Files, list[Line]]:
    """Two tables, two moves between them, one that was aborted, a moment after each, and what their callers told."""
    folder = tmp_path_factory.mktemp("several")
    paths = [str(folder / name) for name in ("table", "table-2")]
    options = {**OPTIONS, MODE_OPTION: OPTIMISTIC}
    lines: list[Line] = []
    works = ("", "move-1", "move-2")
    for path in paths:
        open_bank(LocalStorage(path), OPTIMISTIC)

    def tell(event: str, **values: Any) -> None:
        at_ns = 10 * len(lines) + 10
        lines.append({"at_ns": at_ns, "event": event, "process": "move-1.1", **values})

    tell("started", table=None)
    for number in (1, 2):
        work, began_ns = works[number], 10 * len(lines) + 15
        told = {"work": work, "isolation": "serializable", "began_ns": began_ns}
        reads = [[table, _PURSE, works[number - 1]] for table in (0, 1)]
        if number == 2:  # a try that is aborted when both parts have their slots
            with pytest.raises(LakelatchError), active("several.before_decision=raise"):
                _move(paths, work, number, options)
            tell("moving", **told, reads=reads, writes=[[0, _PURSE], [1, _PURSE]], instants={"0": "1", "1": "2"})
            tell("return", work=work, outcome="failed", tables=[0, 1])
        results = _move(paths, work, number, options)
        instants = {str(table): results[path].instant for table, path in enumerate(paths)}
        tell("moving", **told, reads=reads, writes=[[0, _PURSE], [1, _PURSE]], instants=instants)
        tell("return", work=work, outcome="committed", tables=[0, 1])
        cut = lakelatch.snapshot(paths)
        rows = [cut.to_arrow(path).to_pylist() for path in paths]
        purses = {
            str(table): {row["key"]: [row["version"], row["balance"], row["work"]] for row in found}
            for table, found in enumerate(rows)
        }
        times = {str(table): cut.times[path] for table, path in enumerate(paths)}
        began_ns = 10 * len(lines) + 5
        tell("moment", began_ns=began_ns, ended_ns=began_ns + 1, times=times, purses=purses)
    return [dict(Folder(Path(path))) for path in paths], lines


def _move(paths: list[str], work: str, version: int, options: dict[str, object]) -> Any:
    with lakelatch.transaction(paths, options) as tx:
        for path, sign in zip(paths, (1, -1), strict=True):
            row = (_PURSE, version, sign * 10 * version, work, "purses")
            tx.upsert(path, pa.Table.from_arrays([[value] for value in row], schema=SCHEMA))
    return tx.results


def told_of(files: Files, lines: list[Line]) -> Told:
    decisions = decisions_in(files)
    tables = [Evidence(TableFiles(own, decisions=decisions), History([]), {}) for own in files]
    return Told.of(tables, lines)


def problems_of(told: Told) -> list[str]:
    return [problem for check in OF_SEVERAL for problem in check(told)]


def copied(made: tuple[Files, list[Line]]) -> tuple[Files, list[Line]]:
    files, lines = made
    return [dict(own) for own in files], [dict(line) for line in lines]


def test_a_sound_history_has_no_problems(made: tuple[Files, list[Line]]) -> None:
    told = told_of(*made)
    assert not problems_of(told)
    assert sum(map(told.is_done, told.moves)) == 2 < len(told.moves) and len(told.moments) == 2
    for evidence in told.tables:  # what was aborted is in the log, and nothing that anybody has to heed
        assert any(slot["decision"] and slot["kind"] == "withdraw" for slot in evidence.table.slots)
        assert not find_problems(evidence, OF_TABLE, ())


Damage = Callable[[Files, list[Line]], object]


def forget_a_part(files: Files, _: list[Line]) -> None:
    path = sorted(path for path in files[1] if path.startswith(f"{TIMELINE}/") and "_" in path.rpartition("/")[2])[-1]
    del files[1][path]


def tell_last(event: str, **values: Any) -> Damage:
    def act(_: Files, lines: list[Line]) -> None:
        turn = max(number for number, line in enumerate(lines) if line["event"] == event)
        lines[turn] = {**lines[turn], **values}

    return act


def forget_decisions(files: Files, _: list[Line]) -> None:
    for own in files:
        for path in [path for path in own if "/decisions/" in path]:
            del own[path]


def resolve_wrongly(_: Files, lines: list[Line]) -> None:
    lines.append({"at_ns": 10**6, "event": "resolved", "process": "move-1.1", "work": "move-2", "committed": False})


def see_what_was(_: Files, lines: list[Line]) -> None:
    """The second moment is of the first one's times, though the second move was acknowledged before."""
    first, second = (line for line in lines if line["event"] == "moment")
    second.update(times=first["times"], purses=first["purses"])


def see_half(_: Files, lines: list[Line]) -> None:
    first, second = (line for line in lines if line["event"] == "moment")
    second["times"] = {"0": second["times"]["0"], "1": first["times"]["1"]}
    second["purses"] = {"0": second["purses"]["0"], "1": first["purses"]["1"]}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (forget_a_part, "is torn: it is committed in table alone"),
        (tell_last("return", outcome="refused"), "was told refused, and is committed"),
        (tell_last("moving", instants={"0": "1", "1": "2"}), "was told committed, and is not: it is lost"),
        (resolve_wrongly, "was resolved as not committed"),
        (forget_decisions, "still waits for the decision"),
        (tell_last("moment", purses={"0": {_PURSE: [1, 5, "move-1"]}, "1": {}}), "whose sum over all tables is 5"),
        (tell_last("moment", purses={"0": {}, "1": {}}), "saw purse-0 of table as they were not"),
        (see_half, "G-single"),
        (see_what_was, "G-single-realtime"),
        (tell_last("moving", reads=[[0, _PURSE, ""], [1, _PURSE, "move-1"]]), "G-single"),
        (tell_last("moving", reads=[[0, _PURSE, "move-7"]]), "G1a"),
    ],
)
def test_a_damage_is_found(made: tuple[Files, list[Line]], damage: Damage, message: str) -> None:
    files, lines = copied(made)
    damage(files, lines)
    assert [problem for problem in problems_of(told_of(files, lines)) if message in problem]


def test_money_that_was_made_is_found(made: tuple[Files, list[Line]]) -> None:
    told = told_of(*copied(made))
    assert not problems_of(replace(told, moments=[]))
    table = told.tables[0].table
    (commit, rows) = table.written[-1]
    table.written[-1] = (commit, [row._replace(balance=row.balance + 1) for row in rows])
    assert problems_of(replace(told, moments=[])) == ["the sum of all purses of all tables is 1 at the end"]


def test_the_history_of_one_table_has_its_part_of_what_was_told_of_all() -> None:
    lines: list[Line] = [
        {"event": "started", "process": "move-1.1", "table": None},
        {"event": "started", "process": "append-2.1", "table": 1},
        {"event": "fault", "process": "nemesis"},
        {"event": "return", "process": "move-1.1", "tables": [1, 2], "parts": {"1": {"instant": "7"}}},
        {"event": "lease", "process": "move-1.1", "table": 1},
        {"event": "seen", "process": "append-2.1"},
    ]
    first, second = lines_of_table(0, lines), lines_of_table(1, lines)
    assert [line["event"] for line in first] == ["started", "fault"]
    assert [line["event"] for line in second] == ["started", "fault", "return", "lease", "seen"]
    assert second[2]["instant"] == "7"
