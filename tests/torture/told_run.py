"""A long run as its histories and verdicts tell it, without tables: many clients, many calls, many faults."""

from __future__ import annotations

import json
import random  # noqa: TID251  (seeded)
from pathlib import Path
from typing import Any

_SECOND_NS = 1_000_000_000
_ROLES = {"transfer": 3, "append": 3, "compact": 1, "serve": 2, "cancel": 1}
_FAULTS = (
    "paused",
    "killed",
    "storage_slow",
    "storage_cut",
    "clock_stepped",
    "locks_cut",
    "stop_at_step",
    "serve_paused",
)
_STEPS = ("commit.after_lock", "commit.before_slot", "commit.after_slot", "rollback.after_plan", "begin.after_claim")


def tell_round(run: Path, number: int, provider: str, calls: int, problems: list[str] | None = None) -> Path:
    """One round of so many calls over a minute."""
    draw = random.Random(number)
    folder = run / "rounds" / f"{number:04d}-{provider}"
    (folder / "history").mkdir(parents=True)
    clients = [f"{role}-{turn}" for role, count in _ROLES.items() for turn in range(1, count + 1)]
    for client in clients:
        _write(folder, f"{client}.1", _calls(draw, client, calls // len(clients)))
    _write(folder, "nemesis", _nemesis(draw, clients))
    for reader, event in (("tail-1", "seen"), ("snapshot-1", "snapshot")):
        _write(
            folder, f"{reader}.1", [{"at_ns": int(draw.random() * 72 * _SECOND_NS), "event": event} for _ in range(300)]
        )
    ends = {
        "began_ns": 0,
        "faults_ended_ns": 60 * _SECOND_NS,
        "healed_ns": 61 * _SECOND_NS,
        "ended_ns": 72 * _SECOND_NS,
    }
    (folder / "round.json").write_text(json.dumps({"provider": provider, "seed": number, **ends}))
    counts = {"committed": calls * 7 // 10, "conflicts": calls // 5, "retries": calls // 6, "unknown": 31}
    counts |= {
        "unknown_committed": 12,
        "unknown_not_committed": 19,
        "rollbacks": 40,
        "compactions": 9,
        "snapshots": 300,
    }
    verdict = {
        "problems": problems or [],
        "counts": {**counts, "overlaps": draw.randrange(4)},
        "faults": {kind: draw.randrange(3, 15) for kind in (*_FAULTS, "server_paused", "disk_full")},
        "failpoints": {
            f"{step}={action}": draw.randrange(1, 9) for step in _STEPS for action in ("stop", "kill", "raise")
        },
        "recovery_s": round(draw.random() * 4, 2),
        "lease_s": 2.0,
        "hudi_rs": "agreed",
        "operations": calls,
        "notes": [],
    }
    (folder / "verdict.json").write_text(json.dumps(verdict))
    return folder


def tell_run(run: Path) -> None:
    run.mkdir(parents=True, exist_ok=True)
    settings = {"seed": 7, "providers": ["zookeeper", "redis"], "lease_s": 2.0, "round_s": 60}
    (run / "run.json").write_text(json.dumps(settings))


def _write(folder: Path, process: str, lines: list[dict[str, Any]]) -> None:
    ordered = sorted(lines, key=lambda line: int(line["at_ns"]))
    (folder / "history" / f"{process}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in ordered))


def _calls(draw: random.Random, client: str, count: int) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = [{"at_ns": 0, "event": "started", "client": client, "incarnation": 1, "role": "x"}]
    step_ns = 70 * _SECOND_NS // count
    for number in range(count):
        work, at_ns = f"{client}.1.{number:04d}", number * step_ns
        (outcome,) = draw.choices(("committed", "done", "refused", "failed", "unknown"), (60, 10, 20, 5, 1))
        lines.append({"at_ns": at_ns, "event": "call", "work": work, "role": client.partition("-")[0]})
        end_ns = at_ns + int(step_ns * (0.3 + 0.6 * draw.random()))
        lines.append({"at_ns": end_ns, "event": "return", "work": work, "outcome": outcome, "instant": "", "error": ""})
    return lines


def _nemesis(draw: random.Random, clients: list[str]) -> list[dict[str, Any]]:
    lines = []
    for number in range(70):
        at_ns = int(draw.random() * 57 * _SECOND_NS)
        kind = draw.choice((*_FAULTS, "server_paused", "disk_full"))
        target = {"server_paused": "server", "disk_full": "disk"}.get(kind, draw.choice(clients))
        told = {"fault": kind, "target": target, "id": number, "detail": ""}
        lines.append({"at_ns": at_ns, "event": "fault", **told})
        lines.append({"at_ns": at_ns + int(draw.random() * 3 * _SECOND_NS), "event": "heal", **told})
    return lines
