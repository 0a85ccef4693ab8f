"""Says what is wrong with a table after a storm. It reads files, and shares no code with what it judges."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import fastavro


class Judge:
    """One look at a table that nobody writes to any more. `problems` collects what is found."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.problems: list[str] = []
        self.slots = [self._json(path) for path in sorted((root / ".hoodie/.lakelatch/log").glob("*.json"))]
        names = sorted(path.name for path in (root / ".hoodie/timeline").iterdir())
        self.ended = [name for name in names if "_" in name]
        self.begun = {name.split(".")[0]: name.split(".")[1] for name in names if "_" not in name}
        self.completion: dict[str, str] = {}  # of completed writes, by requested time
        self.files: dict[str, list[str]] = {}
        for name in self.ended:
            start, end, action = name.replace("_", ".").split(".")
            if action in ("commit", "deltacommit", "replacecommit"):
                self.expect(start not in self.completion, f"{start} completed twice")
                self.completion[start] = end
                record = self._avro(root / ".hoodie/timeline" / name)
                stats = record["partitionToWriteStats"].values()
                self.files[start] = [stat["path"] for found in stats for stat in found]

    def judge(self) -> list[str]:
        self._judge_log()
        self._judge_timeline()
        self._judge_data()
        self._judge_leftovers()
        return self.problems

    def judge_told(self, told: Iterable[Mapping[str, str]]) -> None:
        """What writers were told must be so: `outcome` committed, refused or unknown."""
        for line in told:
            instant, outcome = line["instant"], line["outcome"]
            if outcome == "committed":
                self.expect(
                    self.completion.get(instant) == line["completion"], f"{instant} was told committed: {dict(line)}"
                )
            elif outcome == "refused":
                self.expect(instant not in self.completion, f"{instant} was told not committed, and is")

    def judge_bases(self) -> None:
        """Each optimistic write must have been based on all that completed before it in its group."""
        before: dict[str, list[str]] = {}
        for instant in sorted(self.completion, key=lambda start: self.completion[start]):
            for path in self.files[instant]:
                wrote = self._json(self.root / path)
                group = wrote["group"]
                earlier = before.setdefault(group, [])
                if wrote["optimistic"]:
                    self.expect(
                        wrote["base"] == sorted(earlier), f"{instant} overwrote {group} without having seen all"
                    )
                earlier.append(instant)

    def expect(self, holds: bool, problem: str) -> None:
        if not holds:
            self.problems.append(problem)

    def _judge_log(self) -> None:
        numbers = [slot["number"] for slot in self.slots]
        if numbers:
            self.expect(numbers == list(range(numbers[0], numbers[-1] + 1)), f"gaps between the slots {numbers}")
            self.expect(numbers[0] <= max(self.slots[-1]["watermark"], 1), "slots above the watermark are gone")
        times = [slot["time"] for slot in self.slots]
        self.expect(times == sorted(set(times)), f"slot times do not increase: {times}")
        for operation, count in Counter(slot["operation_id"] for slot in self.slots).items():
            self.expect(count == 1, f"operation {operation} is in the log {count} times")
        for slot in self.slots:
            shown = (self.root / ".hoodie/timeline" / slot["file"]).exists()
            self.expect(shown, f"slot {slot['number']} has no file {slot['file']}")
        contents = {slot["content_path"] for slot in self.slots}
        for path in (self.root / ".hoodie/.lakelatch/content").glob("*"):
            self.expect(f".hoodie/.lakelatch/content/{path.name}" in contents, f"content {path.name} is nobody's")

    def _judge_timeline(self) -> None:
        times = [name.split("_")[1].split(".")[0] for name in self.ended]
        self.expect(len(set(times)) == len(times), "two instants completed at one time")
        for name in self.ended:
            start, _, rest = name.partition("_")
            self.expect(start < rest.split(".")[0], f"{name} completed before it began")
            if name.endswith(".rollback"):
                for victim in self._avro(self.root / ".hoodie/timeline" / name)["commitsRollback"]:
                    self.expect(victim not in self.completion, f"{victim} was committed and rolled back")
                    self.expect(victim not in self.begun, f"{victim} was rolled back and is pending")
        ended = {name.split("_")[0] for name in self.ended}
        pending = {start: action for start, action in self.begun.items() if start not in ended}
        waiting = [f"{start}.{action}" for start, action in pending.items() if action != "compaction"]
        self.expect(not waiting, f"still pending: {waiting}")

    def _judge_data(self) -> None:
        wanted = {path for paths in self.files.values() for path in paths}
        found = [path for path in self.root.rglob("*") if path.is_file() and ".hoodie" not in path.parts]
        full = {str(path.relative_to(self.root)) for path in found if path.stat().st_size}
        self.expect(wanted <= full, f"committed files are missing: {sorted(wanted - full)}")
        self.expect(full <= wanted, f"files of no commit are left: {sorted(full - wanted)}")

    def _judge_leftovers(self) -> None:
        for folder in (".hoodie/.heartbeat", ".hoodie/.temp", ".hoodie/.lakelatch/open"):
            left = [str(path) for path in (self.root / folder).rglob("*") if path.is_file()]
            self.expect(not left, f"left behind: {left}")

    def _json(self, path: Path) -> Any:
        return json.loads(path.read_bytes())

    def _avro(self, path: Path) -> Any:
        with path.open("rb") as file:
            (record,) = fastavro.reader(file)
        return record
