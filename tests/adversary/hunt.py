"""One attack from a seed, and many of them."""

from __future__ import annotations

import random  # noqa: TID251  (seeded)
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from attack import KINDS, Attack
from driver import Engine
from looks import Looks

Kinds = dict[str, int]


def attack(
    path: str,
    seed: int,
    steps: int,
    looks: Looks,
    kinds: Kinds = KINDS,
    engine: Callable[[str, dict[str, str]], Engine] = Engine,
    attacking: Callable[..., Attack] = Attack.of,
) -> Counter[str]:
    """After each step everything is compared; what was reached. A failing seed prints its options and steps."""
    attacked = attacking(path, seed, engine)
    print(f"seed {seed}: {attacked.layout.choice}")
    chance = random.Random(f"looks {seed}")
    names = random.Random(f"kinds {seed}").choices(list(kinds), list(kinds.values()), k=steps - 1)
    for kind in ["upsert", *names]:
        print(kind)
        attacked.step(kind)
        looks.look(attacked, chance)
        if kind == "compact" and attacked.merges:
            looks.look_at_base_files(attacked)
    looks.look(attacked, chance, everything=True)
    return attacked.reached


def attacks(folder: Path, seeds: Iterable[int], steps: int, looks: Looks) -> Counter[str]:
    """Several tables, and what was reached in all of them."""
    reached: Counter[str] = Counter()
    for seed in seeds:
        reached += attack(str(folder / f"t{seed}"), seed, steps, looks)
    print(f"reached: {sorted(reached.items())}\ncompared: {sorted(looks.compared.items())}")
    return reached
