"""A whole run: rounds on each provider until each has had its minutes; it can be left alone, ended, and resumed."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from lakelatch.errors import InvalidRequest
from lakelatch.testing.servers.seaweedfs import BUCKET
from lakelatch.torture.nemesis.faults import remove_memory_disk
from lakelatch.torture.nemesis.lock_server import LockServer
from lakelatch.torture.nemesis.store_ways import TableStore
from lakelatch.torture.runs.rounds import run_round
from lakelatch.torture.settings import Place, TortureSettings

_SETTINGS = "run.json"
_VERDICT = "verdict.json"
_ROUND_MIN_S = 2.0

Progress = Callable[[str, str], None]


def begin_run(folder: Path, settings: TortureSettings) -> None:
    """Makes the folder of a new run. Errors: `InvalidRequest` if there is one already."""
    if (folder / _SETTINGS).exists():
        raise InvalidRequest(
            f"--folder {folder} holds a run already: go on with it by --resume, or name another folder",
            option="--folder",
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _SETTINGS).write_text(json.dumps(settings.to_json(), indent=1))


def settings_of(folder: Path) -> TortureSettings:
    """The options of a run. Errors: `InvalidRequest` where there is none."""
    try:
        return TortureSettings.of_json(json.loads((folder / _SETTINGS).read_text()))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InvalidRequest(
            f"--folder {folder} holds no run that could be resumed or reported on ({error}): name another one",
            option="--folder",
        ) from error


def verdicts_of(folder: Path) -> dict[Path, dict[str, Any]]:
    """The verdict of each round that came to its end."""
    found = sorted((folder / "rounds").glob(f"*/{_VERDICT}"))
    return {path.parent: json.loads(path.read_text()) for path in found}


def faults_s_of(round_folder: Path) -> float:
    """For how long faults were injected in a round."""
    facts = json.loads((round_folder / "round.json").read_text())
    return float((facts["faults_ended_ns"] - facts["began_ns"]) / 1e9)


def run(folder: Path, settings: TortureSettings, progress: Progress, ended: Progress) -> list[str]:
    """Runs the rounds that are still missing; returns all problems found, including those of earlier rounds.

    `progress(round, text)` is called many times a second, `ended(round, text)` once a round.
    """
    _forget_cut_off(folder)
    _change_minutes(folder, settings)
    with _store(folder, settings) as store:
        for provider in settings.providers:
            if _minutes_done(folder, provider) >= settings.minutes:
                continue
            locks = LockServer(provider, folder / "servers" / provider, settings.lease_s)
            try:
                while (missing := settings.minutes - _minutes_done(folder, provider)) * 60 >= _ROUND_MIN_S:
                    faults_s = min(settings.round_s, missing * 60)
                    ended(*_round(folder, settings, provider, locks, faults_s, store, progress))
            finally:
                locks.close()
    return [
        f"{place.name}: {problem}" for place, verdict in verdicts_of(folder).items() for problem in verdict["problems"]
    ]


@contextmanager
def _store(folder: Path, settings: TortureSettings) -> Iterator[TableStore | None]:
    """The object store of all rounds; none for tables on disks."""
    if not settings.store:
        yield None
        return
    with closing(TableStore(folder / "servers" / "store")) as store:
        yield store


def _round(
    folder: Path,
    settings: TortureSettings,
    provider: str,
    locks: LockServer,
    faults_s: float,
    store: TableStore | None,
    progress: Progress,
) -> tuple[str, str]:
    """The round's name, and a line on it."""
    verdicts = verdicts_of(folder)
    number = 1 + max((int(place.name.partition("-")[0]) for place in (folder / "rounds").glob("*-*")), default=0)
    name = f"{number:04d}-{provider}"
    uri, reached = (f"s3://{BUCKET}/{name}/table", store.options) if store else ("", {})
    place = Place(
        folder.absolute() / "rounds" / name,
        provider,
        settings.lease_s,
        settings.seed + number,
        uri,
        reached,
        tables=settings.tables,
    )
    coverage: Counter[str] = Counter()
    for verdict in verdicts.values():
        coverage.update(verdict["faults"])
        coverage.update(verdict["failpoints"])
    locks.put_right()
    if store is not None:
        store.put_right()
    verdict = run_round(
        settings,
        place,
        locks,
        store,
        coverage,
        faults_s,
        on_memory_disk=number % 2 == 1 and store is None,
        progress=lambda text: progress(place.folder.name, text),
    )
    if not settings.keep and not verdict["problems"]:
        for each in place.all_tables:
            shutil.rmtree(each.table)
            shutil.rmtree(each.kept, ignore_errors=True)
    return place.folder.name, summary_of(verdict)


def summary_of(verdict: Mapping[str, Any]) -> str:
    """One line on a round."""
    counts, faults = Counter(verdict["counts"]), sum(verdict["faults"].values())
    said = f"{len(verdict['problems'])} PROBLEMS" if verdict["problems"] else "nothing lost, nothing doubled"
    return (
        f"{said}: {counts['committed']} commits, {counts['conflicts']} conflicts, {counts['unknown']} unknown, "
        f"{counts['rollbacks']} rollbacks, {counts['compactions']} compactions, {counts['clusterings']} clusterings, "
        f"{counts['cancellations']} cancelled, {counts['cleans']} cleans, {counts['archived']} archived, "
        f"{faults} faults, recovered in {verdict['recovery_s']:.1f} s, "
        f"hudi-rs {verdict['hudi_rs']}"
    )


def _minutes_done(folder: Path, provider: str) -> float:
    done = [place for place in verdicts_of(folder) if place.name.endswith(f"-{provider}")]
    return sum(faults_s_of(place) for place in done) / 60


def _forget_cut_off(folder: Path) -> None:
    """Removes rounds without a verdict, which were cut off with their run: what their clients saw last is unknown."""
    for place in sorted((folder / "rounds").glob("*")):
        if not (place / _VERDICT).exists():
            remove_memory_disk(place / "table")
            shutil.rmtree(place, ignore_errors=True)


def _change_minutes(folder: Path, settings: TortureSettings) -> None:
    known = settings_of(folder)
    if replace(known, minutes=settings.minutes, keep=settings.keep) != settings:
        raise InvalidRequest(f"{folder} was begun with other settings: only --minutes and --keep may change")
    (folder / _SETTINGS).write_text(json.dumps(settings.to_json(), indent=1))
