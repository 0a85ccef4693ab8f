"""How many commits of 2 to 32 processes succeed that write one table on the local disk at once: ours and the peers'.

Ten rows a commit: with new keys (`batches`), or new values of the same ten keys of one file group (`updates`). Each
library with the retries that it has by default, and without any. Each commit begins when the one before it has ended,
so that a library which refuses quickly fails more often in the same time: beside the share of commits that succeeded
stands how long one took that did. As `nbcc_writers` in all else, so what was said to be committed is looked for.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from bench.harness import Result
from bench.locks.common import main, percentile, print_table, short
from bench.nbcc_peers import BatchWriter, NbccWriter
from bench.nbcc_writers import BATCHES, UPDATES, Line, in_turns, local_place
from bench.stores.postgres import open_catalog
from bench.stores.writers import RETRYING

_COUNTS, _QUICK_COUNTS = (2, 4, 8, 16, 32), (2, 8)
_ROUNDS, _ROUND_S, _QUICK_ROUND_S = 1, 4.0, 2.0
_HEADERS = ("writer", "succeeded", "commits/s", "commit ms: median", "p99")


_KINDS: tuple[type[BatchWriter], ...] = (NbccWriter, *RETRYING)


def run(quick: bool = False, shapes: Sequence[str] = (BATCHES, UPDATES)) -> list[Result]:
    results: list[Result] = []
    for shape in shapes:
        for processes in _QUICK_COUNTS if quick else _COUNTS:
            with ExitStack() as stack:
                left_out = open_catalog(stack)
                round_s = _QUICK_ROUND_S if quick else _ROUND_S
                lines = in_turns(_KINDS, shape, processes, _ROUNDS, round_s, left_out, local_place)
            print_table(f"{shape}: {processes} processes", _HEADERS, [_row(line) for line in lines], left_out)
            results += _results(shape, processes, lines)
    return results


def _row(line: Line) -> tuple[str, ...]:
    times = statistics.median(line.commits_ms), percentile(line.commits_ms, 0.99)
    return (line.name, f"{_share(line):.0%}", short(line.median("commits_per_s")), *map(short, times))


def _share(line: Line) -> float:
    return len(line.commits_ms) / (len(line.commits_ms) + line.failed)


def _results(shape: str, processes: int, lines: Sequence[Line]) -> Iterator[Result]:
    for line in lines:
        if line.name == NbccWriter.name:
            best = max((_share(other) for other in lines if other is not line), default=None)
            note = ", ".join(f"{other.name} {_share(other):.0%}" for other in lines if other is not line)
            share, goal = _share(line), "every commit succeeds"
            yield Result(
                f"success_{shape}_{processes}",
                round(share, 3),
                "of commits",
                1.0,
                best,
                share,
                goal,
                share == 1.0,
                note,
            )


if __name__ == "__main__":
    main(run, (BATCHES, UPDATES))
