"""4 to 64 processes that commit batches of ten rows to one table in SeaweedFS: ours and delta-rs, both by conditional
puts of the same server, near (loopback), and behind 30 or 65 ms (as S3 has them) more for each request. As
`nbcc_writers` in all else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from bench.harness import Result
from bench.locks.common import NotHere, main, open_place, print_table
from bench.nbcc_peers import DeltaWriter, DeltaWriterWithOpenTable, NbccWriter, OpenNbccWriter, SideBySideNbccWriter
from bench.nbcc_writers import BATCHES, in_turns, print_lines, results_beside_peers
from bench.stores.distance import distant

from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.servers.seaweedfs import BUCKET

NEAR, DISTANT, FAR = "near", "distant", "far"
_DELAYS_S = {NEAR: 0.0, DISTANT: 0.030, FAR: 0.065}
_KINDS = (NbccWriter, OpenNbccWriter, SideBySideNbccWriter, DeltaWriter, DeltaWriterWithOpenTable)


@dataclass(frozen=True)
class _Way:
    """Far away a writer makes some commits in ten seconds, and it takes a minute to see table services come and go."""

    place: str
    processes: tuple[int, ...]
    rounds: int
    round_s: float
    quick_round_s: float
    goal: float  # commits a second, to delta-rs


_WAYS = {
    NEAR: _Way(NEAR, (4, 16), 2, 8.0, 5.0, 5.0),
    DISTANT: _Way(DISTANT, (4, 16), 2, 8.0, 5.0, 4.0),
    FAR: _Way(FAR, (16,), 1, 60.0, 10.0, 4.0),
    "near_64": _Way(NEAR, (64,), 1, 30.0, 10.0, 10.0),
    "far_64": _Way(FAR, (64,), 1, 60.0, 20.0, 4.0),
}


def run(quick: bool = False, ways: Sequence[str] = tuple(_WAYS)) -> list[Result]:
    results: list[Result] = []
    try:
        for name in ways:
            way = _WAYS[name]
            with open_store(way.place):
                rounds, round_s = (1, way.quick_round_s) if quick else (way.rounds, way.round_s)
                for processes in way.processes:
                    results += _measure(way, processes, rounds, round_s)
    except NotHere as error:
        print_table("writers in an object store", (), [], [str(error)])
    return results


@contextmanager
def open_store(way: str) -> Iterator[list[str]]:
    """SeaweedFS, whose address and keys are in the environment, for child processes as well; what is left out.

    Errors: `NotHere`.
    """
    with open_place("storage") as place, ExitStack() as stack:
        if _DELAYS_S[way]:
            port = stack.enter_context(distant(place.host, place.port, _DELAYS_S[way]))
            os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{port}"
        yield []


def new_table(stack: ExitStack) -> str:
    """A place that no table is at yet."""
    return f"s3://{BUCKET}/{REAL_SYSTEM.new_id()}/table"


def _measure(way: _Way, processes: int, rounds: int, round_s: float) -> list[Result]:
    left_out: list[str] = []
    lines = in_turns(_KINDS, BATCHES, processes, rounds, round_s, left_out, new_table)
    print_lines(f"SeaweedFS, {way.place}: {processes} processes, ten rows a commit", lines, left_out)
    return results_beside_peers(f"store_writers_{way.place}_{processes}", lines, {DeltaWriter.needs: way.goal})


if __name__ == "__main__":
    main(run, tuple(_WAYS))
