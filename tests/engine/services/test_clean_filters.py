"""Cleans of some partitions: what they take, and that the others are looked at by the next clean of all."""

from __future__ import annotations

from typing import Any

import pytest
from made_history import MadeHistory, group

from lakelatch.engine.options.table_services.cleaning import PARTITION_REGEX, PARTITIONS_SELECTED, CleaningOptions
from lakelatch.engine.services.counters import Counters
from lakelatch.engine.services.removals.clean_planning import UNTIL
from lakelatch.engine.services.removals.cleaning import Clean
from lakelatch.errors import InvalidRequest
from lakelatch.timegen.instant_time import to_ms
from lakelatch.timeline.service_metadata import read_clean_extra, read_earliest_retained
from lakelatch.timeline.snapshot import Snapshot

P, Q, R = ("p", group(0)), ("q", group(0)), ("p/r", group(0))
ALL = CleaningOptions(commits=1)


def selecting(*partitions: str, **more: Any) -> CleaningOptions:
    return CleaningOptions(commits=1, partitions_selected=frozenset(partitions), **more)


def rounds(table: MadeHistory, number: int) -> None:
    for _ in range(number):
        table.write(P, Q, R)
        table.compact_now(P, Q, R)


def cleaned(table: MadeHistory, options: CleaningOptions) -> set[str]:
    """The partitions that lost files to a clean."""
    return {path.rpartition("/")[0] for result in table.clean(options) for path in result.files}


@pytest.mark.parametrize("incremental", [True, False])
@pytest.mark.parametrize(
    ("values", "partitions"),
    [
        ({PARTITIONS_SELECTED: "q, p/r"}, {"q", "p/r"}),
        ({PARTITION_REGEX: "p.*"}, {"p", "p/r"}),
        ({PARTITION_REGEX: "p"}, {"p"}),
        ({PARTITION_REGEX: "p", PARTITIONS_SELECTED: "q"}, {"q"}),
        ({PARTITION_REGEX: "", PARTITIONS_SELECTED: " "}, {"p", "q", "p/r"}),
        ({PARTITIONS_SELECTED: "s"}, set()),
    ],
)
def test_only_the_selected_partitions_lose_files(
    table: MadeHistory, values: dict[str, str], partitions: set[str], incremental: bool
) -> None:
    rounds(table, 3)
    table.clean(ALL)
    rounds(table, 3)
    more = {"hoodie.clean.commits.retained": "1", "hoodie.clean.incremental.enabled": str(incremental).lower()}
    assert cleaned(table, CleaningOptions.from_options({**values, **more})) == partitions


@pytest.mark.parametrize("first", [False, True])
def test_the_next_clean_of_all_goes_on_where_the_last_one_of_all_ended(table: MadeHistory, first: bool) -> None:
    """Also if others have cleaned partitions since, which is not looked for, and if there is nothing new."""
    rounds(table, 3)
    if first:
        table.clean(ALL)
        rounds(table, 3)
    needed = table.needed_since(table.completions()[-2])
    assert cleaned(table, selecting("q")) == {"q"}
    assert cleaned(table, selecting("p")) == {"p"}
    assert cleaned(table, ALL) == {"p/r"} and table.files() == needed
    assert cleaned(table, ALL) == set()


def test_other_engines_are_not_told_that_all_was_cleaned_until_a_moment(table: MadeHistory) -> None:
    rounds(table, 3)
    (result,) = table.clean(selecting("q"))
    (clean,) = [one for one in Snapshot.load(table.storage).completed if one.requested == result.instant]
    content = table.storage.read(clean.path)
    assert read_earliest_retained(content, clean.path) == ""
    assert UNTIL not in read_clean_extra(content, clean.path)


def test_tombstones_that_a_filter_has_passed_over_are_looked_for_again(table: MadeHistory) -> None:
    """The clean of all before it held their partition back until they are old."""
    begun = table.begin([Q])
    begun[0].abort()
    (late,) = (stat.path for stat in begun[1])
    rounds(table, 3)
    table.clean(ALL)
    assert late in table.files()
    table.system.advance(26 * 3600)
    table.write(P)
    assert cleaned(table, selecting("p")) <= {"p"} and late in table.files()
    rounds(table, 1)
    table.clean(ALL)
    assert late not in table.files()


def test_one_of_some_partitions_is_due_whatever_the_last_clean_has_looked_at(table: MadeHistory) -> None:
    rounds(table, 3)
    table.clean(selecting("q"))
    counters = Counters.of(Snapshot.look(table.storage), to_ms(table.completions()[-1]))
    assert Clean(selecting("p", trigger_commits=0)).due(counters) and not Clean(selecting("p")).due(counters)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (PARTITION_REGEX, "day=[", "no regular expression"),
        (PARTITION_REGEX, "(?<day>.*)", "no regular expression"),
        (PARTITIONS_SELECTED, "p,,q", "with commas between them"),
        (PARTITIONS_SELECTED, "/p", "with commas between them"),
    ],
)
def test_filters_that_select_nothing_are_refused(key: str, value: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said) as caught:
        CleaningOptions.from_options({key: value})
    assert caught.value.details["option"] == key and repr(value) in str(caught.value)
