"""One seed, one run: writers, compactors and readers under faults, then without any, then the checker.

`python tests/simulation/simulate.py --seeds 0:1000` runs many, on all cores, and tells of each that went wrong;
`--of-tree 1000` so many in a row, which the source itself draws; `--seed 7 --lines` shows what happened in one;
`--record FILE` notes down what ran, and adds up over runs.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import logging
import multiprocessing
import multiprocessing.pool
import re
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from types import FrameType

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))  # for the archiver

from course import Outcome
from planted import PLANTED, planted
from record import add_range, read_record, seeds_once, stamp
from run import Run
from seams import Place, step
from several import SeveralRun

from lakelatch import failpoints
from lakelatch.engine.services.rewrites import clustering_commit
from lakelatch.format import file_groups as file_ids
from lakelatch.locks.session import session as sessions
from lakelatch.system import REAL_SYSTEM
from lakelatch.timeline import records, snapshot
from lakelatch.timeline.history import named_files
from lakelatch.transactions.base import cancel_requests

_HANGS_CPU_S = 60  # of processor time, for a run that takes a quarter of a second: a busy machine hangs nobody for that
_WAITS_S = 1800  # for what nobody wakes any more
_COMMAND = "python tests/simulation/simulate.py"
_DRAWN_FROM, _DRAWN_TO = 1_000_000, 1_000_000_000  # where a range that the tree draws begins
_CHUNKS_A_PROCESS = 20  # a process that simulates grows
_CHUNK_MOST = 50
_COLLECTED_EACH = 100_000  # objects: a seed makes many, and leaves few in cycles
_SEVERAL_EVERY = 25  # so many seeds are simulated once more, over several tables: that takes four times as long
_RECORDED_EACH = 1_000  # seeds, so that a run that is cut off is noted down as far as it came
_CHUNKS_LEAST = 30  # or one process simulates the last of few chunks while others have nothing to do
_ROOT = Path(__file__).parents[2]
_NOT_SIMULATED = re.compile(r"\.|bench/|build/|tests/(?!simulation/|support/)|.*/\.")

# All actors and the watch read the same few files again and again: what bytes say is found out once. Nobody changes it.
records.decode = lru_cache(maxsize=1024)(records.decode)
snapshot.snapshot_of = lru_cache(maxsize=256)(snapshot.snapshot_of)


@contextmanager
def _simulated(place: Place) -> Iterator[None]:
    """The product's failpoints lead here, and no lock session of another run is known."""
    sessions._sessions._values.append(sessions._Sessions())
    for cached in (file_ids._place, cancel_requests._cached_plan, clustering_commit._places_of):
        cached.cache_clear()
    named_files.forget_all()
    try:
        with failpoints.calling(partial(step, place), failpoints.NAMES):
            yield
    finally:
        sessions._sessions._values.pop()


def simulate(
    seed: int,
    mistake: str = "",
    keep_lines: bool = False,
    with_ledger: bool = False,
    with_loads: bool = False,
    several: bool = False,
) -> Outcome:
    """Runs one seed, with a planted mistake of that name if there is one.

    `with_ledger`, on a copy-on-write table; `with_loads`, beside bulk loads; `several`, over several tables.
    """
    wrong = PLANTED.get(mistake)
    run: Run
    if several or (wrong is not None and wrong.several):
        run = SeveralRun(seed, keep_lines)
    elif wrong is None:
        run = Run(seed, keep_lines, with_loads=with_loads, with_ledger=with_ledger)
    else:
        run = Run(seed, keep_lines, wrong.stocked, wrong.loads, wrong.ledger)
    with _simulated(run.place), planted(mistake):
        return run.outcome()


class Hung(BaseException):
    """A run that no longer moves: code that waits for a lock of the operating system's while another actor holds it."""


def _begin() -> None:
    logging.disable()
    signal.signal(signal.SIGPROF, _give_up)
    signal.signal(signal.SIGALRM, _give_up)
    gc.freeze()  # what is imported: the collector would look through it in each seed again
    gc.set_threshold(_COLLECTED_EACH)


def _simulate_some(arguments: tuple[int, int, str, bool]) -> list[Outcome]:
    first, last, mistake, several = arguments
    outcomes = []
    for seed in range(first, last):
        outcomes.append(_limited(seed, mistake, several))
        if seed % _SEVERAL_EVERY == 0 and not (mistake or several):
            outcomes.append(_limited(seed, mistake, several=True))
    return outcomes


def _limited(seed: int, mistake: str, several: bool) -> Outcome:
    """As `simulate`, but a run that hangs is told of instead of hanging its caller."""
    signal.setitimer(signal.ITIMER_PROF, _HANGS_CPU_S)
    signal.alarm(_WAITS_S)
    try:
        return simulate(seed, mistake, several=several)
    except Hung as hung:
        return Outcome(seed, (f"it hangs at {hung}",), "", 0.0, Counter(), several=several)
    except Exception as error:  # of the product's, which no actor expects: others are simulated all the same
        return Outcome(seed, (f"it ends with {error!r}",), "", 0.0, Counter(), several=several)
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)


def _give_up(_: int, frame: FrameType | None) -> None:
    raise Hung(" < ".join(f"{each.name}:{each.lineno}" for each in reversed(traceback.extract_stack(frame, 12))))


def open_pool(processes: int = 0) -> multiprocessing.pool.Pool:
    """Processes that simulate, one on each core unless it is said otherwise."""
    spawning = multiprocessing.get_context("spawn")
    return spawning.Pool(processes or None, initializer=_begin, maxtasksperchild=_CHUNKS_A_PROCESS)


def many(
    pool: multiprocessing.pool.Pool,
    first: int,
    last: int,
    mistake: str = "",
    chunk: int = 0,
    several: bool = False,
) -> Iterator[Outcome]:
    """The outcomes of a range of seeds, as they come."""
    chunk = chunk or min(max((last - first) // _CHUNKS_LEAST, 1), _CHUNK_MOST)
    chunks = [(start, min(start + chunk, last), mistake, several) for start in range(first, last, chunk)]
    for outcomes in pool.imap_unordered(_simulate_some, chunks):
        yield from outcomes


def of_tree(count: int, root: Path = _ROOT) -> tuple[int, int]:
    """So many seeds in a row, as the first one and the one after the last: for another source others, else the same.

    So whoever changes something meets seeds that nobody has chosen, and whoever repeats a run meets the same ones.
    """
    sources = {path.relative_to(root): path for path in root.rglob("*.py")}
    digest = hashlib.sha256()
    for name, path in sorted(sources.items()):
        if not _NOT_SIMULATED.match(name.as_posix()):
            digest.update(name.as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    first = _DRAWN_FROM + int.from_bytes(digest.digest()[:8], "big") % (_DRAWN_TO - _DRAWN_FROM)
    return first, first + count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:1000", help="FIRST:LAST, the last one not included")
    parser.add_argument("--of-tree", type=int, metavar="COUNT", help="so many, from one on that the source draws")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--lines", action="store_true", help="print what happens (with --seed)")
    parser.add_argument("--several", action="store_true", help="transactions over several tables instead")
    parser.add_argument("--planted", default="", choices=["", *PLANTED], help="with this mistake in the product")
    parser.add_argument("--processes", type=int, default=0, help="0 for one on each core")
    parser.add_argument("--record", type=Path, help="add what ran to this file")
    options = parser.parse_args()
    if options.record and options.planted:
        parser.error("--record is for the product as it is: leave --planted out")
    logging.disable()
    if options.seed is not None:
        outcome = simulate(options.seed, options.planted, options.lines, several=options.several)
        for line in outcome.lines:
            print(line)
        print(
            json.dumps({"problems": outcome.problems, "fingerprint": outcome.fingerprint, **outcome.counts}, indent=1)
        )
        return 1 if outcome.problems else 0
    first, last = of_tree(options.of_tree) if options.of_tree else (int(part) for part in options.seeds.split(":"))
    planted_too = f" --planted '{options.planted}'" if options.planted else ""
    several_too = " --several" if options.several else ""
    print(f"Seeds {first}:{last}. Once more: {_COMMAND} --seeds {first}:{last}{planted_too}{several_too}", flush=True)
    total, wrong, ran = Total(), list[str](), stamp() if options.record else {}
    with open_pool(options.processes) as pool:
        every = _RECORDED_EACH if options.record else max(last - first, 1)
        for start in range(first, last, every):
            end, part = min(start + every, last), Total()
            for outcome in many(pool, start, end, options.planted, several=options.several):
                total.add(outcome)
                part.add(outcome)
                if outcome.problems:
                    kind = f"{planted_too}{' --several' if outcome.several else ''}"
                    wrong.append(
                        f"seed {outcome.seed}: {'; '.join(outcome.problems)[:600]}\n"
                        f"What happened: {_COMMAND} --seed {outcome.seed}{kind} --lines"
                    )
                    print(wrong[-1], flush=True)
                if total.due():
                    print(f"{total.seeds or total.several} of {last - first}, {total}", flush=True)
            if options.record:
                add_range(options.record, {**ran, **part.to_json(start, end), "only_several": options.several})
                print(f"{seeds_once(read_record(options.record)):,} seeds in {options.record} now", flush=True)
    print(json.dumps(dict(sorted(total.counts.items())), indent=1))
    print("\n".join([*wrong[:10], str(total)]))  # once more: what is cut off of a long output is its beginning
    return 1 if total.wrong else 0


class Total:
    """What many runs have in common."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.seeds = self.several = self.wrong = 0
        self.wrong_seeds: list[str] = []
        self._virtual_s = self._slowest_s = 0.0
        self._began_ns = self._told_ns = REAL_SYSTEM.monotonic_ns()

    def add(self, outcome: Outcome) -> None:
        self.seeds += not outcome.several
        self.several += outcome.several
        self.wrong += bool(outcome.problems)
        self.wrong_seeds += [f"{outcome.seed}{' of several tables' if outcome.several else ''}"] * bool(
            outcome.problems
        )
        self.counts += outcome.counts
        self._virtual_s += outcome.virtual_s
        self._slowest_s = max(self._slowest_s, outcome.recovered_s)

    def due(self) -> bool:
        """Whether it is time to say something again."""
        now_ns = REAL_SYSTEM.monotonic_ns()
        if now_ns - self._told_ns < 10_000_000_000:
            return False
        self._told_ns = now_ns
        return True

    def to_json(self, first: int, last: int) -> dict[str, object]:
        """As a range of seeds is noted down."""
        return {
            "first": first,
            "last": last,
            "seeds": self.seeds,
            "several": self.several,
            "wrong": self.wrong_seeds,
            "simulated_hours": round(self._virtual_s / 3600, 1),
            "counts": dict(self.counts),
        }

    def __str__(self) -> str:
        took_s = (REAL_SYSTEM.monotonic_ns() - self._began_ns) / 1e9
        return (
            f"{self.seeds} seeds in {took_s:.0f} s ({self.seeds / took_s:.0f} a second), "
            f"{self.several} over several tables, "
            f"{self._virtual_s / 3600:.1f} simulated hours, slowest to recover {self._slowest_s:.1f} s, "
            f"{self.wrong} wrong"
        )


if __name__ == "__main__":
    sys.exit(main())
