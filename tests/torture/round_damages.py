"""Ways to damage a made round by hand, one for each thing that the checker has to see."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from made_round import MadeRound, go_on

Damage = Callable[[Path], object]
LATE, LATER = "20990101000000000", "20990101000000001"


def slots(folder: Path) -> list[Path]:
    return sorted((folder / "table/.hoodie/.lakelatch/log").glob("*.json"))


def timeline(folder: Path, pattern: str) -> Path:
    """The last file of the timeline of such a name."""
    return sorted((folder / "table/.hoodie/timeline").glob(pattern))[-1]


def edit_slot(kind: str, change: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]) -> Damage:
    """Changes the last slot of a kind; it is given the slot and the one before."""

    def act(folder: Path) -> None:
        paths = slots(folder)
        values = [json.loads(path.read_text()) for path in paths]
        turn = max(number for number, slot in enumerate(values) if slot["kind"] == kind)
        paths[turn].write_text(json.dumps({**values[turn], **change(values[turn], values[turn - 1])}))

    return act


def edit_lines(process: str, event: str, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> Damage:
    """Changes the lines of an event, or takes those away for which there is nothing."""

    def act(folder: Path) -> None:
        for path in (folder / "history").glob(f"{process}.jsonl"):
            lines = []
            for text in path.read_text().splitlines(keepends=True):
                line = json.loads(text) if text.endswith("\n") else {}
                new = change(line) if line.get("event") == event else line
                if line and new is not None:
                    lines.append(json.dumps(new) + "\n")
            path.write_text("".join(lines))

    return act


def edit_last(process: str, event: str, **values: Any) -> Damage:
    """Changes the last line of an event."""

    def act(folder: Path) -> None:
        path = folder / "history" / f"{process}.jsonl"
        texts = path.read_text().splitlines()
        turn = max(number for number, text in enumerate(texts) if f'"event": "{event}"' in text)
        texts[turn] = json.dumps({**json.loads(texts[turn]), **values})
        path.write_text("\n".join(texts) + "\n")

    return act


def edit_round(**values: Any) -> Damage:
    def act(folder: Path) -> None:
        path = folder / "round.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return act


def rewrite(pattern: str, change: Callable[[dict[str, Any]], object]) -> Damage:
    """Writes a file of the timeline anew, with its record changed."""

    def act(folder: Path) -> None:
        path = timeline(folder, pattern)
        with path.open("rb") as file:
            reader = fastavro.reader(file)
            schema, (record,) = reader.writer_schema, list(reader)
        assert isinstance(record, dict) and schema is not None
        change(record)
        with path.open("wb") as file:
            fastavro.writer(file, schema, [record])

    return act


def add_completed(start: str, end: str, action: str = "clean") -> Damage:
    return lambda folder: (folder / f"table/.hoodie/timeline/{start}_{end}.{action}").write_bytes(b"x")


def again_in_timeline(pattern: str, suffix: str) -> Damage:
    """One more file of the instant of a file."""

    def act(folder: Path) -> None:
        old = timeline(folder, pattern)
        (old.parent / (old.name.partition("_")[0] + suffix)).write_bytes(old.read_bytes())

    return act


def same_completion(folder: Path) -> None:
    end = timeline(folder, "*_*.deltacommit").name.partition("_")[2].partition(".")[0]
    add_completed("20200101000000000", end)(folder)


def roll_back_a_commit(folder: Path) -> None:
    victim = timeline(folder, "*_*.deltacommit").name.partition("_")[0]
    rewrite("*_*.rollback", lambda record: record.update(commitsRollback=[victim]))(folder)


def abort_a_commit(folder: Path) -> None:
    victim = timeline(folder, "*_*.deltacommit").name.partition("_")[0]
    edit_slot("rollback", lambda slot, _: {"target": victim})(folder)


def drop_a_log_of_a_plan(record: dict[str, Any]) -> None:
    record["operations"][0]["deltaFilePaths"].pop()


def exchange_the_base_of_a_plan(record: dict[str, Any]) -> None:
    operation = record["operations"][0]
    operation["dataFilePath"] = None if operation["dataFilePath"] else "none_0_1.parquet"


def data(folder: Path, pattern: str) -> Path:
    """The last data file of such a name."""
    return max((folder / "table").glob(pattern), key=lambda path: path.name.rpartition("_")[2])


def last_log(folder: Path) -> Path:
    """A log file of the last transfer, whichever bucket it is in."""
    instant = _instant_of(folder, "transfer-1.1", "transfer-1.1.0004")
    return next((folder / "table/bank").glob(f".*_{instant}.log.*"))


def _instant_of(folder: Path, process: str, work: str) -> str:
    lines = map(json.loads, (folder / f"history/{process}.jsonl").read_text().splitlines())
    (instant,) = {line["instant"] for line in lines if line["event"] == "return" and line["work"] == work}
    return str(instant)


def leave_an_orphan(folder: Path) -> None:
    log = last_log(folder)
    instant = log.name.partition("_")[2].partition(".")[0]
    log.with_name(log.name.replace(instant, LATE)).write_bytes(log.read_bytes())


def tear(folder: Path) -> None:
    log = last_log(folder)
    log.write_bytes(log.read_bytes()[:-3])


def swap_logs(folder: Path) -> None:
    """A log file under the name of another instant."""
    log = last_log(folder)
    old = next((folder / "table/journal").glob(".*.log.*"))
    log.write_bytes(old.read_bytes())


def edit_base(change: Callable[[pa.Table], pa.Table]) -> Damage:
    def act(folder: Path) -> None:
        path = data(folder, "bank/*.parquet")
        pq.write_table(change(pq.read_table(path, partitioning=None)), path, store_schema=False)

    return act


def more_money(rows: pa.Table) -> pa.Table:
    column = rows.schema.get_field_index("balance")
    return rows.set_column(column, "balance", pc.add(rows["balance"], 1))


def twice(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, rows])


def leave(path: str) -> Damage:
    def act(folder: Path) -> None:
        target = folder / "table/.hoodie" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"")

    return act


def leave_a_plan(folder: Path) -> None:
    made = go_on(folder)
    made.transfer("transfer-1.2", "transfer-1.2.0001", "account-0", "account-1", 1)
    made.compact("compact-1.2", "compact-1.2.0001", execute=False)


def write_once_more(process: str, work: str, role: str, *rows: tuple[str, int, int, str, str]) -> Damage:
    return lambda folder: go_on(folder).write(process, work, role, rows)


def swap_seen(folder: Path) -> None:
    def act(line: dict[str, Any]) -> dict[str, Any]:
        return {**line, "files": line["files"][::-1]}

    edit_lines("tail-1.1", "seen", act)(folder)


def without_first(line: dict[str, Any]) -> dict[str, Any]:
    return {**line, "files": line["files"][1:]}


def other_contents(line: dict[str, Any]) -> dict[str, Any]:
    return {**line, "sha": dict.fromkeys(line["files"][:1], "0" * 16)}


def no_base_file(record: dict[str, Any]) -> None:
    record["partitionToWriteStats"].popitem()


def empty_the_log(folder: Path) -> None:
    for path in slots(folder):
        path.unlink()


def see_what_was(folder: Path) -> None:
    """A reader begins when all is over, and sees the table without the last transfer."""
    accounts = {"account-0": [1, -10], "account-1": [2, 6], "account-2": [1, 4]}
    append_line("snapshot-2.1", event="started", at_ns=10**12)(folder)
    append_line("snapshot-2.1", event="snapshot", at_ns=10**12 + 1, accounts=accounts, entries=7)(folder)


def two_holders(folder: Path) -> None:
    made = go_on(folder)
    made.tokens = 10
    hold_together(made)


def hold_together(made: MadeRound) -> None:
    """Two leases of one key, both of which say that they are valid."""
    start_ns = made.now_ns
    made.lease("transfer-7.1")
    made.now_ns = start_ns + 1
    made.lease("append-7.1")


def append_line(process: str, **line: Any) -> Damage:
    def act(folder: Path) -> None:
        with (folder / f"history/{process}.jsonl").open("a") as file:
            file.write(json.dumps({"at_ns": 1, **line}) + "\n")

    return act


def break_a_line(folder: Path) -> None:
    path = folder / "history/transfer-1.1.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], "{\n", *lines[1:]]))


def nobody_answers_after_the_faults(folder: Path) -> None:
    healed_ns = json.loads((folder / "round.json").read_text())["healed_ns"]
    edit_lines("*", "return", lambda line: None if line["at_ns"] > healed_ns else line)(folder)


def late_answers(folder: Path) -> None:
    healed_ns = json.loads((folder / "round.json").read_text())["healed_ns"]

    def later(line: dict[str, Any]) -> dict[str, Any]:
        return {**line, "at_ns": line["at_ns"] + (100_000_000_000 if line["at_ns"] > healed_ns else 0)}

    edit_lines("*", "return", later)(folder)
