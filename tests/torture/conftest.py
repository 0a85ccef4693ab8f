from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for `made_round`

from made_round import make_round


@pytest.fixture(scope="session")
def sound_round(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A round in which nothing went wrong. Do not change it: `copied` gives one to damage."""
    return make_round(tmp_path_factory.mktemp("run"))


@pytest.fixture
def copied(sound_round: Path, tmp_path: Path) -> Callable[[], Path]:
    """Copies the sound round, and the run that it is in."""

    def copy() -> Path:
        run = sound_round.parent.parent
        shutil.copytree(run, tmp_path / run.name)
        return tmp_path / run.name / "rounds" / sound_round.name

    return copy
