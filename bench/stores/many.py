"""4 to 16 processes that commit batches of ten rows to one table in SeaweedFS: ours and delta-rs, both by conditional
puts of the same server, near (loopback) and behind 30 ms more for each request. As `nbcc_writers` in all else."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from bench.harness import Result
from bench.locks.common import NotHere, main, open_place, print_table
from bench.nbcc_peers import DeltaWriter, DeltaWriterWithOpenTable, NbccWriter
from bench.nbcc_writers import BATCHES, in_turns, print_lines, results_beside_peers
from bench.stores.distance import distant

from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.servers.seaweedfs import BUCKET

NEAR, DISTANT = "near", "distant"
DELAY_S = 0.030
_PROCESSES = (4, 16)
_KINDS = (NbccWriter, DeltaWriter, DeltaWriterWithOpenTable)
_GOALS = {NEAR: {DeltaWriter.needs: 5.0}, DISTANT: {DeltaWriter.needs: 4.0}}
_FULL, _QUICK = (2, 8.0), (1, 5.0)  # rounds, and seconds of each


def run(quick: bool = False, ways: Sequence[str] = (NEAR, DISTANT)) -> list[Result]:
    results: list[Result] = []
    try:
        for way in ways:
            with open_store(way):
                for processes in _PROCESSES:
                    results += _measure(way, processes, *(_QUICK if quick else _FULL))
    except NotHere as error:
        print_table("writers in an object store", (), [], [str(error)])
    return results


@contextmanager
def open_store(way: str) -> Iterator[list[str]]:
    """SeaweedFS, whose address and keys are in the environment, for child processes as well; what is left out.

    Errors: `NotHere`.
    """
    with open_place("storage") as place, ExitStack() as stack:
        if way == DISTANT:
            port = stack.enter_context(distant(place.host, place.port, DELAY_S))
            os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{port}"
        yield []


def new_table(stack: ExitStack) -> str:
    """A place that no table is at yet."""
    return f"s3://{BUCKET}/{REAL_SYSTEM.new_id()}/table"


def _measure(way: str, processes: int, rounds: int, round_s: float) -> list[Result]:
    left_out: list[str] = []
    lines = in_turns(_KINDS, BATCHES, processes, rounds, round_s, left_out, new_table)
    print_lines(f"SeaweedFS, {way}: {processes} processes, ten rows a commit", lines, left_out)
    return results_beside_peers(f"store_writers_{way}_{processes}", lines, _GOALS[way])


if __name__ == "__main__":
    main(run, (NEAR, DISTANT))
