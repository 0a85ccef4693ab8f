"""A short torture of the product with a mistake in it: `planted_run.py FOLDER MISTAKE PROVIDER SECONDS`.

It prints what the checker found, a line a problem, and nothing if it found nothing.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path

from lakelatch.torture.runs.run import begin_run, run
from lakelatch.torture.settings import TortureSettings


def main(folder: Path, mistake: str, provider: str, faults_s: float) -> None:
    # Every client is a fork of the process that imports this first.
    (folder / "mistaken.py").write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[1] / 'simulation')!r})\n"
        f"from planted import planted\nmistake = planted({mistake!r})\nmistake.__enter__()\n"
    )
    os.environ["PYTHONPATH"] = str(folder)
    multiprocessing.get_context("forkserver").set_forkserver_preload(["mistaken", "lakelatch.torture.traffic.clients"])
    settings = TortureSettings((provider,), faults_s / 60, round_s=faults_s, pace_s=0.4, keep=True)
    begin_run(folder / "run", settings)
    print("\n".join(run(folder / "run", settings, lambda *_: None, lambda *_: None)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4]))
