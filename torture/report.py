"""A run as one HTML page that needs nothing else: the verdict, what was done, and pictures of the rounds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from lakelatch.errors import CorruptTable, InvalidRequest
from lakelatch.torture.history import read_history
from lakelatch.torture.report_style import LEGEND, STYLE
from lakelatch.torture.round_drawing import draw_round, family_of

_DRAWN_MAX = 20
_PROBLEMS_SHOWN_MAX = 100
_ACTIONS = ("stop", "kill", "raise")


@dataclass(frozen=True)
class Round:
    """A round that was judged."""

    folder: Path
    facts: dict[str, Any]
    verdict: dict[str, Any]

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def provider(self) -> str:
        return str(self.facts.get("provider") or self.name.partition("-")[2])

    @property
    def minutes(self) -> float:
        """Of storm."""
        return max(int(self.facts.get("storm_ended_ns") or 0) - int(self.facts.get("began_ns") or 0), 0) / 60e9

    @property
    def problems(self) -> list[str]:
        return list(self.verdict.get("problems") or [])

    @property
    def leases_to_recover(self) -> float:
        return float(self.verdict.get("recovery_s", 0.0)) / float(self.verdict.get("lease_s") or 1.0)

    def count(self, name: str) -> int:
        return int((self.verdict.get("counts") or {}).get(name, 0))

    def total(self, name: str) -> int:
        """How many faults, or failpoints."""
        return sum((self.verdict.get(name) or {}).values())

    @property
    def interest(self) -> tuple[int, float]:
        """What is worth a picture: problems first, then whatever was rare and hard."""
        rare = self.count("unknown") + self.count("rollbacks") + 5 * self.count("overlaps")
        return len(self.problems), rare + self.count("conflicts") / 10 + 10 * self.leases_to_recover


def write_report(run_folder: Path, out: Path) -> None:
    """Writes the page on a run, as far as it has come, to `out`. Errors: `InvalidRequest` where there is no run."""
    try:
        settings = json.loads((run_folder / "run.json").read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"{run_folder} holds no run to report on ({error}): name the folder of a run") from error
    rounds = [_read(path.parent) for path in sorted((run_folder / "rounds").glob("*/verdict.json"))]
    body = [
        *_head(settings, rounds),
        *_verdict(rounds),
        *(_totals(rounds) if rounds else ()),
        *(_providers(rounds) if rounds else ()),
        *(_harm(rounds) if rounds else ()),
        *(_rounds(rounds) if rounds else ()),
    ]
    title = "Torture run: " + _said(rounds)
    page = (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{STYLE}</style></head>'
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page, encoding="utf-8")


def _read(folder: Path) -> Round:
    facts = folder / "round.json"
    known = json.loads(facts.read_bytes()) if facts.is_file() else {}
    return Round(folder, known, json.loads((folder / "verdict.json").read_bytes()))


def _said(rounds: list[Round]) -> str:
    problems = sum(len(one.problems) for one in rounds)
    if problems:
        return _counted(problems, "problem")
    return "nothing lost, nothing doubled" if rounds else "no round has ended yet"


# -- parts of the page -----------------------------------------------------------------------------------------------


def _head(settings: Mapping[str, Any], rounds: list[Round]) -> Iterator[str]:
    providers = ", ".join(dict.fromkeys(one.provider for one in rounds)) or ", ".join(settings.get("providers") or ())
    facts = [f"seed {settings.get('seed', '?')}", f"leases of {settings.get('lease_s', '?')} s", f"locks: {providers}"]
    yield "<h1>Torture run</h1>"
    yield f'<p class="soft">{escape(" · ".join(facts))}</p>'


def _verdict(rounds: list[Round]) -> Iterator[str]:
    wrong = [one for one in rounds if one.problems]
    if not rounds:
        yield '<div class="verdict"><b>No round has ended yet.</b></div>'
        return
    agreed = sum(one.verdict.get("hudi_rs") == "agreed" for one in rounds)
    checked = f"{_counted(len(rounds), 'round')} judged; hudi-rs read the same rows in {agreed:,} of them."
    if not wrong:
        yield '<div class="verdict good"><b>Nothing lost, nothing doubled.</b>'
        yield f"<p>Every acknowledged commit is in its table exactly once. {checked}</p></div>"
        return
    yield f'<div class="verdict bad"><b>{_said(rounds)} in {_counted(len(wrong), "round")}.</b><p>{checked}</p>'
    found = [(one, problem) for one in wrong for problem in one.problems]
    yield '<ul class="problems">'
    for one, problem in found[:_PROBLEMS_SHOWN_MAX]:
        yield f'<li><a href="#{escape(one.name)}">{escape(one.name)}</a>: {escape(problem)}</li>'
    yield "</ul>"
    if len(found) > _PROBLEMS_SHOWN_MAX:
        yield f"<p>And {len(found) - _PROBLEMS_SHOWN_MAX:,} more.</p>"
    yield "</div>"


def _totals(rounds: list[Round]) -> Iterator[str]:
    def total(name: str) -> int:
        return sum(one.count(name) for one in rounds)

    resolved = total("unknown_committed") + total("unknown_not_committed")
    tiles = (
        (f"{sum(one.minutes for one in rounds):,.1f}", "minutes of storm"),
        (f"{sum(int(one.verdict.get('operations') or 0) for one in rounds):,}", "operations"),
        (f"{total('committed'):,}", "acknowledged commits"),
        (f"{total('conflicts'):,}", "conflicts"),
        (f"{total('retries'):,}", "retries"),
        (f"{resolved:,}", f"unknown, {total('unknown_committed'):,} of them committed"),
        (f"{total('rollbacks'):,}", "rollbacks"),
        (f"{total('compactions'):,}", "compactions"),
        (f"{total('snapshots'):,}", "snapshots checked"),
        (f"{sum(one.total('faults') for one in rounds):,}", "faults"),
        (f"{sum(one.total('failpoints') for one in rounds):,}", "failpoints hit"),
        (f"{max(one.leases_to_recover for one in rounds):.1f}", "lease times: worst recovery"),
    )
    yield '<div class="tiles">'
    for number, what in tiles:
        yield f'<div class="tile"><b>{number}</b><span>{what}</span></div>'
    yield "</div>"


def _providers(rounds: list[Round]) -> Iterator[str]:
    heads = ("locks", "rounds", "minutes", "commits", "conflicts", "faults", "worst recovery", "overlaps", "problems")
    rows = []
    for provider in dict.fromkeys(one.provider for one in rounds):
        own = [one for one in rounds if one.provider == provider]
        rows.append(
            (
                provider,
                f"{len(own):,}",
                f"{sum(one.minutes for one in own):,.1f}",
                *(f"{sum(one.count(name) for one in own):,}" for name in ("committed", "conflicts")),
                f"{sum(one.total('faults') for one in own):,}",
                f"{max(one.leases_to_recover for one in own):.1f} leases",
                f"{sum(one.count('overlaps') for one in own):,}",
                f"{sum(len(one.problems) for one in own):,}",
            )
        )
    yield "<h2>Lock providers</h2>"
    yield from _table(heads, rows)
    yield '<p class="soft">Overlaps: two holders both believed that they had the lock. The commit log decides then.</p>'


def _harm(rounds: list[Round]) -> Iterator[str]:
    faults: Counter[str] = Counter()
    failpoints: Counter[str] = Counter()
    for one in rounds:
        faults.update(one.verdict.get("faults") or {})
        failpoints.update(one.verdict.get("failpoints") or {})
    yield '<div class="two"><div><h2>Faults</h2>'
    if faults:
        most = max(faults.values())
        yield "<table>"
        for kind, count in sorted(faults.items(), key=lambda item: (-item[1], item[0])):
            bar = f'<i style="width:{100 * count / most:.1f}%;background:var(--{family_of(kind)})"></i>'
            yield f'<tr><td>{escape(kind.replace("_", " "))}</td><td>{count:,}</td><td class="bar">{bar}</td></tr>'
        yield "</table>"
    else:
        yield '<p class="soft">None.</p>'
    yield "</div><div><h2>Failpoints</h2>"
    yield from _failpoints(failpoints)
    yield "</div></div>"


def _failpoints(hits: Mapping[str, int]) -> Iterator[str]:
    if not hits:
        yield '<p class="soft">Nobody ran into one.</p>'
        return
    pairs = [tuple(key.rpartition("=")[::2]) for key in hits]
    others = sorted({action for _, action in pairs} - set(_ACTIONS))
    actions = [action for action in (*_ACTIONS, *others) if any(action == found for _, found in pairs)]
    most = max(hits.values())
    heads = "".join(f'<th class="heat">{escape(action)}</th>' for action in actions)
    yield f"<table><tr><th>step</th>{heads}</tr>"
    for name in sorted({name for name, _ in pairs}):
        yield f"<tr><td><code>{escape(name)}</code></td>"
        for action in actions:
            count = hits.get(f"{name}={action}", 0)
            strength = 0.12 + 0.5 * count / most if count else 0.0
            yield f'<td class="heat" style="background:rgba(var(--heat),{strength:.2f})">{count or "·"}</td>'
        yield "</tr>"
    yield "</table>"


def _rounds(rounds: list[Round]) -> Iterator[str]:
    drawn = sorted(rounds, key=lambda one: one.interest, reverse=True)[:_DRAWN_MAX]
    yield "<h2>Rounds</h2>"
    if len(rounds) > len(drawn):
        yield f'<p class="soft">Drawn are the {len(drawn)} of {len(rounds):,} in which most went wrong.</p>'
    swatches = (f'<span><i style="background:var(--{name})"></i>{text}</span>' for name, text in LEGEND)
    yield f'<div class="legend">{"".join(swatches)}<span>✕ killed</span><span>▲ at a failpoint</span>'
    yield "<span>▶ begun anew</span><span>green: all faults have ended</span></div>"
    for turn, one in enumerate(sorted(drawn, key=lambda found: (not found.problems, found.name))):
        yield from _round(one, opened=turn == 0 or bool(one.problems))
    if len(rounds) > len(drawn):
        heads = ("round", "commits", "conflicts", "unknown", "rollbacks", "faults", "recovery")
        yield f"<details><summary><b>All {len(rounds):,} rounds</b></summary>"
        yield from _table(heads, (_row(one) for one in rounds))
        yield "</details>"


def _row(one: Round) -> tuple[str, ...]:
    counts = (f"{one.count(name):,}" for name in ("committed", "conflicts", "unknown", "rollbacks"))
    return one.name, *counts, f"{one.total('faults'):,}", f"{one.leases_to_recover:.1f} leases"


def _round(one: Round, opened: bool) -> Iterator[str]:
    mark = f'<span class="mark wrong">{_counted(len(one.problems), "problem")}</span>'
    facts = (
        f"{one.minutes * 60:.0f} s of storm, {_counted(one.count('committed'), 'commit')}, "
        f"{_counted(one.count('conflicts'), 'conflict')}, "
        f"{one.count('unknown'):,} unknown, {_counted(one.total('faults'), 'fault')}, recovered in "
        f"{one.verdict.get('recovery_s', 0.0):.1f} s"
    )
    yield f'<details id="{escape(one.name)}"{" open" if opened else ""}><summary><b>{escape(one.name)}</b>'
    yield f'{mark if one.problems else ""}<span class="soft">{facts}</span></summary>'
    notes = list(one.verdict.get("notes") or [])
    if one.verdict.get("hudi_rs", "agreed") != "agreed":
        notes.append(f"hudi-rs: {one.verdict['hudi_rs']}")
    for said, kind in ((one.problems[:_PROBLEMS_SHOWN_MAX], "problems"), (notes, "problems soft")):
        if said:
            yield f'<ul class="{kind}">{"".join(f"<li>{escape(text)}</li>" for text in said)}</ul>'
    try:
        yield f'<div class="scroll">{draw_round(one.facts, read_history(one.folder / "history"))}</div>'
    except CorruptTable as error:
        yield f"<p>{escape(str(error))}</p>"
    yield "</details>"


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    yield f'<div class="scroll"><table><tr>{"".join(f"<th>{escape(head)}</th>" for head in heads)}</tr>'
    for row in rows:
        yield f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
    yield "</table></div>"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
