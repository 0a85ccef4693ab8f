"""4 to 64 processes that commit batches of ten rows to one table in SeaweedFS: ours and delta-rs, both by conditional
puts of the same server, near (loopback), and behind 30 or 65 ms (as S3 has them) more for each request. As
`nbcc_writers` in all else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from bench.harness import Result
from bench.locks.common import NotHere, main, open_place, print_table
from bench.nbcc_peers import DeltaWriter, DeltaWriterWithOpenTable, NbccWriter, OpenNbccWriter, SideBySideNbccWriter
from bench.nbcc_writers import BATCHES, in_turns, print_lines, results_beside_peers
from bench.stores.distance import distant

from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.servers.seaweedfs import BUCKET

NEAR, DISTANT, FAR = WAYS = ("near", "distant", "far")
_DELAYS_S = {NEAR: 0.0, DISTANT: 0.030, FAR: 0.065}
_PROCESSES = {NEAR: (4, 16, 64), DISTANT: (4, 16), FAR: (16, 64)}
_KINDS = (NbccWriter, OpenNbccWriter, SideBySideNbccWriter, DeltaWriter, DeltaWriterWithOpenTable)
_GOALS = {NEAR: {DeltaWriter.needs: 5.0}, DISTANT: {DeltaWriter.needs: 4.0}, FAR: {DeltaWriter.needs: 4.0}}
_FULL, _QUICK = (2, 8.0), (1, 5.0)  # rounds, and seconds of each
_FAR_TIMES = 2  # as long a round, in which a writer makes some commits


def run(quick: bool = False, ways: Sequence[str] = WAYS) -> list[Result]:
    results: list[Result] = []
    try:
        for way in ways:
            with open_store(way):
                for processes in _PROCESSES[way]:
                    rounds, round_s = _QUICK if quick else _FULL
                    results += _measure(way, processes, rounds, round_s * (_FAR_TIMES if way == FAR else 1))
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


def _measure(way: str, processes: int, rounds: int, round_s: float) -> list[Result]:
    left_out: list[str] = []
    lines = in_turns(_KINDS, BATCHES, processes, rounds, round_s, left_out, new_table)
    print_lines(f"SeaweedFS, {way}: {processes} processes, ten rows a commit", lines, left_out)
    return results_beside_peers(f"store_writers_{way}_{processes}", lines, _GOALS[way])


if __name__ == "__main__":
    main(run, WAYS)
