"""Ports for servers: whoever has one has it alone, also while nobody listens on it."""

from __future__ import annotations

import subprocess
import sys

from lakelatch.system import RealSystem
from lakelatch.testing.ports import free_port

CHOOSER = """
from lakelatch.system import RealSystem
from lakelatch.testing.ports import free_port

class Drawn(RealSystem):
    def random(self):
        return drawn.pop(0)

drawn = {drawn!r}
print(free_port(Drawn()), len(drawn))
"""


class Drawn(RealSystem):
    """Draws these numbers, one after the other."""

    def __init__(self, *numbers: float) -> None:
        self.numbers = list(numbers)

    def random(self) -> float:
        return self.numbers.pop(0)


def elsewhere(*numbers: float) -> tuple[int, int]:
    """The port that a process of its own chooses, and how many numbers it did not need."""
    done = subprocess.run(
        [sys.executable, "-c", CHOOSER.format(drawn=list(numbers))], capture_output=True, text=True, check=True
    )
    port, left = done.stdout.split()
    return int(port), int(left)


def wide(number: float) -> list[float]:
    """Numbers of which some are of free ports, whatever else listens on this machine."""
    return [number + step / 1000 for step in range(100)]


def test_no_port_is_chosen_twice_in_a_process() -> None:
    assert free_port(Drawn(*wide(0.25))) != free_port(Drawn(*wide(0.25)))


def test_no_other_process_chooses_a_port_before_its_server_listens() -> None:
    system = Drawn(*wide(0.5))
    mine = free_port(system)
    port, left = elsewhere(*wide(0.5))
    assert port != mine and left < len(system.numbers)


def test_a_port_is_free_again_when_its_process_has_ended() -> None:
    first, _ = elsewhere(*wide(0.75))
    assert first in {elsewhere(*wide(0.75))[0] for _ in range(3)}
