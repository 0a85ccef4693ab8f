"""Judges a simulated run by its storage and by what callers and readers were told. Shares no code with the product."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import fastavro

TIMELINE = ".hoodie/timeline/"
LOG = ".hoodie/.lakelatch/log/"
TEMPORARY = (
    ".hoodie/.heartbeat/",
    ".hoodie/.temp/",
    ".hoodie/.lakelatch/open/",
    ".hoodie/.lakelatch/beats/",
    ".hoodie/.lakelatch/notes/",
)
CHECKPOINT = "_hudi_streaming_sink_checkpoint"
WRITES = ("commit", "deltacommit", "replacecommit")
_HEADER = fastavro.parse_schema(
    {
        "type": "record",
        "name": "header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": 16}},
        ],
    }
)


class Judge:
    """One look at a table that nobody writes to any more."""

    def __init__(self, objects: Mapping[str, bytes]) -> None:
        self.objects = objects
        self.problems: list[str] = []
        self.slots = [json.loads(objects[path]) for path in sorted(objects) if path.startswith(LOG)]
        names = sorted(path[len(TIMELINE) :] for path in objects if path.startswith(TIMELINE))
        self.begun, self.ended = begun_and_ended(names)
        self.completion: dict[str, str] = {}
        self.files: dict[str, list[str]] = {}
        self.metadata: dict[str, Any] = {}
        for name in self.ended:
            start, end, action = name.replace("_", ".").split(".")
            if action in WRITES:
                self.expect(start not in self.completion, f"{start} completed twice")
                self.completion[start] = end
                self.metadata[start] = self._avro(TIMELINE + name)
                stats = self.metadata[start]["partitionToWriteStats"].values()
                self.files[start] = [stat["path"] for found in stats for stat in found]

    def expect(self, holds: bool, problem: str) -> None:
        if not holds:
            self.problems.append(problem)

    def judge_storage(self) -> None:
        self._judge_log()
        self._judge_timeline()
        self._judge_plans()
        self._judge_data()
        left = [path for path in self.objects if path.startswith(TEMPORARY)]
        self.expect(not left, f"left behind: {left}")

    def judge_told(self, told: Iterable[Mapping[str, str]]) -> None:
        for line in told:
            instant, outcome = line["instant"], line["outcome"]
            if outcome == "committed":
                self.expect(self.completion.get(instant) == line["completion"], f"told committed, and is not: {line}")
            elif outcome == "refused":
                self.expect(instant not in self.completion, f"told not committed, and is: {line}")

    def judge_works(self, told: Iterable[Mapping[str, str]], killed: int) -> None:
        """What was asked for once is done once, unless its caller was told that nobody knows, or died meanwhile."""
        unknown = {line["work"] for line in told if line["outcome"] == "unknown"}
        done = Counter(
            work
            for paths in self.files.values()
            for work in {self._json(path).get("work", "") for path in paths if path.endswith(".log")}
        )
        doubled = {work: count for work, count in done.items() if work and count > 1 and work not in unknown}
        self.expect(len(doubled) <= killed, f"done more than once: {doubled}")

    def judge_seen(self, seen: Mapping[str, list[str]]) -> None:
        """After a reader saw a completion time, nothing with a smaller one may appear; and it must have seen all."""
        for reader, names in seen.items():
            times = [name.split("_")[1].split(".")[0] for name in names]
            self.expect(times == sorted(times), f"{reader} saw commits out of order: {names}")
            self.expect(set(names) <= set(self.ended), f"{reader} saw what is gone: {set(names) - set(self.ended)}")
            self.expect(set(names) >= set(self.ended), f"{reader} missed {set(self.ended) - set(names)}")

    def judge_balances(self) -> None:
        """Each optimistic write was based on all that completed before it in its group; so no transfer got lost."""
        before: dict[str, list[str]] = {}
        balances: dict[str, int] = {}
        for instant in self._in_order():
            for one in self._wrote(instant):
                earlier = before.setdefault(one["group"], [])
                if one["optimistic"]:
                    self.expect(
                        one["base"] == sorted(earlier), f"{instant} wrote {one['group']} without having seen all"
                    )
                    balances[one["group"]] = one.get("balance", 0)
                earlier.append(instant)
            self.expect(sum(balances.values()) == 0, f"money was made or lost by {instant}: {balances}")

    def judge_lost(self, lost: Iterable[Mapping[str, Any]]) -> None:
        """Of two that are at work the earlier one goes on; and who is said to have completed has."""
        for one in lost:
            loser, winner = one["instant"], one["winner"]
            self.expect(loser not in self.completion, f"{loser} lost to {winner}, and has completed")
            if one["inflight"]:
                self.expect(winner < loser, f"{loser} lost to {winner}, which began later and was at work")
            else:
                self.expect(winner in self.completion, f"{loser} lost to {winner}, which has not completed")

    def judge_batches(self, told: Iterable[tuple[int, str]]) -> None:
        """Each batch that somebody was told to be written is there once, under the instant that was told."""
        instants: dict[int, list[str]] = {}
        for start, metadata in self.metadata.items():
            for number in json.loads(metadata["extraMetadata"].get(CHECKPOINT, "{}")).values():
                instants.setdefault(int(number), []).append(start)
        for number, found in instants.items():
            self.expect(len(found) == 1, f"batch {number} is there {len(found)} times: {found}")
        for number, instant in told:
            self.expect(instant in instants.get(number, ()), f"batch {number} was said to be that of {instant}")

    def judge_shelf(self) -> None:
        """A replace commit takes away exactly what had completed before it, and nobody writes to that afterwards."""
        amounts: dict[str, int] = {}  # of the groups that are not replaced
        for instant in self._in_order():
            wrote = [one for one in self._wrote(instant) if "amount" in one]
            replaced = (self.metadata[instant].get("partitionToReplaceFileIds") or {}).get("shelf")
            if replaced is not None:
                self.expect(sorted(replaced) == sorted(amounts), f"{instant} replaced {replaced} of {sorted(amounts)}")
                for one in wrote:
                    same = one["took"] == sorted(amounts) and one["amount"] == sum(amounts.values())
                    self.expect(same or not one["optimistic"], f"{instant} replaced more than it had read")
                amounts = {}
            for one in wrote:
                fresh = one["group"] == f"s{instant}"
                self.expect(fresh or one["group"] in amounts, f"{instant} wrote to {one['group']}, which was replaced")
                amounts[one["group"]] = amounts.get(one["group"], 0) + one["amount"]

    def _in_order(self) -> list[str]:
        return sorted(self.completion, key=lambda start: self.completion[start])

    def _wrote(self, instant: str) -> list[Any]:
        return [self._json(path) for path in self.files[instant] if path.endswith(".log")]

    def _judge_log(self) -> None:
        numbers = [slot["number"] for slot in self.slots]
        if numbers:
            watermark = self.slots[-1]["watermark"]
            live = [number for number in numbers if number >= watermark]
            self.expect(live == list(range(max(watermark, 1), numbers[-1] + 1)), f"slots are missing: {numbers}")
        live_slots = [slot for slot in self.slots if slot["number"] >= self.slots[-1]["watermark"]]
        times = [slot["time"] for slot in live_slots]
        self.expect(times == sorted(set(times)), f"slot times do not increase: {times}")
        for operation, count in Counter(slot["operation_id"] for slot in live_slots).items():
            self.expect(count == 1, f"operation {operation} is in the log {count} times")
        for slot in live_slots:
            self.expect(TIMELINE + slot["file"] in self.objects, f"slot {slot['number']} has no file {slot['file']}")

    def _judge_timeline(self) -> None:
        times = [name.split("_")[1].split(".")[0] for name in self.ended]
        self.expect(len(set(times)) == len(times), "two instants completed at one time")
        starts = [name.split("_")[0] for name in self.ended]
        self.expect(len(set(starts)) == len(starts), "an instant ended twice")
        for name in self.ended:
            start, _, rest = name.partition("_")
            self.expect(start < rest.split(".")[0], f"{name} completed before it began")
            if name.endswith(".rollback"):
                for victim in self._avro(TIMELINE + name)["commitsRollback"]:
                    self.expect(victim not in self.completion, f"{victim} was committed and rolled back")
                    self.expect(victim not in self.begun, f"{victim} was rolled back and is pending")
        waiting = [
            f"{start}.{kind}" for start, kind in self.begun.items() if start not in starts and kind != "compaction"
        ]
        self.expect(not waiting, f"still pending: {waiting}")

    def _judge_plans(self) -> None:
        """A plan names exactly the commits whose completion times are below its own."""
        for path, data in self.objects.items():
            if path.startswith(TIMELINE) and path.endswith(".compaction.requested"):
                plan, planned = path[len(TIMELINE) :].split(".")[0], set(json.loads(data))
                deltas = [name for name in self.ended if name.endswith(".deltacommit")]
                before = {name for name in deltas if name.split("_")[1].split(".")[0] < plan}
                self.expect(planned == before, f"plan {plan} includes {planned ^ before} wrongly")

    def _judge_data(self) -> None:
        wanted = {path for paths in self.files.values() for path in paths}
        data = {path: content for path, content in self.objects.items() if not path.startswith(".hoodie")}
        full = {path for path, content in data.items() if content}
        self.expect(wanted <= full, f"committed files are missing: {sorted(wanted - full)}")
        orphans = {path for path in full - wanted if not path.startswith("base_")}  # of plans that are still pending
        self.expect(not orphans, f"files of no commit are left: {sorted(orphans)}")

    def _json(self, path: str) -> Any:
        return json.loads(self.objects.get(path) or b'{"group": "", "optimistic": false}')

    def _avro(self, path: str) -> Any:
        """The one record of a container file."""
        source = io.BytesIO(self.objects[path])
        header: Any = fastavro.schemaless_reader(source, _HEADER, None)
        schema = _schema(header["meta"]["avro.schema"])
        self.expect(fastavro.schemaless_reader(source, "long", None) == 1, f"{path} has not one record")
        fastavro.schemaless_reader(source, "long", None)  # the block's length
        record = fastavro.schemaless_reader(source, schema, None)
        self.expect(source.read() == header["sync"], f"{path} does not end with its block")
        return record


@lru_cache(maxsize=16)  # parsing them would take most of the judge's time
def _schema(text: bytes) -> Any:
    return fastavro.parse_schema(json.loads(text))


def begun_and_ended(names: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """What kind each instant is that has begun, and the names of those files that say of one that it has ended."""
    begun, ended = {}, []
    for name in names:
        if "_" in name:
            ended.append(name)
        else:
            start, kind = name.split(".")[:2]
            begun[start] = kind
    return begun, ended
