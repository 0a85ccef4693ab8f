"""Each file of a table deleted, one at a time: who needs it says so, and what `verify` calls whole reads as before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fuzzed_table import Made, Place
from test_damaged_tables import _check_named, _watched
from uses import INCREMENTAL, compact, plain, rows, write

from lakelatch.engine.services.verifying import Verification, verify
from lakelatch.errors import LakelatchError
from lakelatch.format.names import is_placeholder
from lakelatch.storage import Storage
from lakelatch.timeline.table_config import load_table_config

VERIFIED: dict[str, object] = {"lakelatch.read.verify": "true"}
USES: dict[str, Callable[[Place, Storage], Any]] = {
    "read": lambda place, _: rows(place, {**VERIFIED}),
    "read_since": lambda place, _: rows(place, {**VERIFIED, **INCREMENTAL}),
    "compact": compact,
}


def verified(place: Place) -> Verification:
    return verify(place.storage, load_table_config(place.storage))


def needed(made: Made) -> list[str]:
    """Data files that hold rows, and completed files."""
    data = [path for path, content in made.files.items() if not path.startswith(".hoodie") and content]
    done = [path for path in made.files if path.startswith(".hoodie/timeline/") and "_" in path.rpartition("/")[2]]
    return sorted([path for path in data if ".hoodie_partition" not in path and not is_placeholder(path)] + done)


def look_without(made: Made, path: str, use: Callable[[Place, Storage], Any], answer: Any) -> bool:
    """Whether a use of the table without a file is refused; else its answer has to be the right one."""
    with made.place() as place:
        place.storage.delete(path)
        try:
            assert use(place, _watched(place)) == answer, f"without {path}"
        except LakelatchError as error:
            _check_named(error, path)
            return True
    return False


@pytest.mark.parametrize("table", ["made", "grouped"])
def test_a_table_with_all_its_files_is_whole(table: str, request: pytest.FixtureRequest) -> None:
    with request.getfixturevalue(table).place() as place:
        assert verified(place).findings == ()


@pytest.mark.parametrize("table", ["made", "grouped"])
@pytest.mark.parametrize("name", USES)
def test_a_use_without_a_file_gives_the_right_answer_or_names_it(
    table: str, name: str, request: pytest.FixtureRequest
) -> None:
    made: Made = request.getfixturevalue(table)
    with made.place() as place:
        answer = USES[name](place, _watched(place))
    refused = [path for path in needed(made) if look_without(made, path, USES[name], answer)]
    assert len(refused) > 3


@pytest.mark.parametrize("table", ["made", "grouped"])
def test_what_verify_calls_whole_reads_as_before(table: str, request: pytest.FixtureRequest) -> None:
    made: Made = request.getfixturevalue(table)
    with made.place() as place:
        before = plain(place)
    named = 0
    for path in needed(made):
        with made.place() as place:
            place.storage.delete(path)
            found = verified(place)
            named += path in {one.path for one in found.findings}
            assert path in {one.path for one in found.findings} or (found.whole and plain(place) == before), path
    assert named > 3


def test_a_write_does_not_take_what_has_lost_its_completed_file_for_dead(made: Made) -> None:
    """It would roll it back, and its rows would be lost for good."""
    with made.place() as place:
        answer = write(place, place.storage)
    done = [path for path in needed(made) if path.endswith(".deltacommit")]
    assert [path for path in done if look_without(made, path, write, answer)]
