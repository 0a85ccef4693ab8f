"""Every option is declared once for all: the page lists it with its default, and a call reads it once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakelatch.engine.options.calls.hints import rule_of
from lakelatch.engine.options.calls.registry import KNOWN_KEYS, OPTIONS, OTHER_NAMES, Call, normalise
from lakelatch.errors import InvalidRequest
from lakelatch.format.base_file_options import is_bloom_key
from lakelatch.option_values import Option

PAGE = (Path(__file__).parents[3] / "docs" / "options.md").read_text().partition("<!-- made by")[0]
SAID_IN_WORDS = {"lakelatch.storage.allow_http", "maxfilespertrigger", "lakelatch.read.stream.max.commits"}
IN_OTHER_ROWS = {"hoodie.base.path", "hoodie.table.ordering.fields", "hoodie.table.precombine.field"}
IN_OTHER_ROWS |= {"parquet.bloom.filter.enabled"}


def rows() -> Iterator[tuple[list[str], str]]:
    """The keys and the default of each row of the page's tables."""
    for line in PAGE.splitlines():
        if line.startswith("| `"):
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            keys = re.findall(r"`([^` ]+)`", cells[0].lower())
            start = keys[0].rpartition(".daybased.")[0] or keys[0].rpartition(".")[0]
            yield [start + key if key.startswith(".") else key for key in keys], cells[-2]


def shown(value: object) -> str | None:
    """A default as the page has it; None for one that it says in words."""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int | float):
        return f"{value:g}" if value < 10_000 else str(value)
    return f"`{value}`" if isinstance(value, str) and value else None


def test_the_page_has_a_row_for_each_option_and_for_nothing_else() -> None:
    found = [key for keys, _ in rows() for key in keys if "<" not in key]
    assert set(found) >= KNOWN_KEYS - IN_OTHER_ROWS
    assert [key for key in found if key not in KNOWN_KEYS and rule_of(key) is None and not is_bloom_key(key)] == []


@pytest.mark.parametrize("option", [one for one in OPTIONS if shown(one.default)], ids=lambda one: str(one.key))
def test_the_page_tells_the_default_of_an_option(option: Option[Any]) -> None:
    if option.key in SAID_IN_WORDS | IN_OTHER_ROWS:
        return
    told = [default for keys, default in rows() if option.key in keys]
    same = [str(shown(one.default)) for one in OPTIONS if one.key == option.key]
    assert all(any(value in default for value in same) for default in told)


def test_other_names_lead_to_options_and_are_none_themselves() -> None:
    assert set(OTHER_NAMES.values()) <= KNOWN_KEYS
    assert not set(OTHER_NAMES) & KNOWN_KEYS
    for name, key in OTHER_NAMES.items():
        assert normalise({name: "7"}) == {key: "7"}


def test_keys_are_in_lower_case_and_each_default_is_what_is_parsed_of_it() -> None:
    assert [one.key for one in OPTIONS if one.key != one.key.lower()] == []
    for one in OPTIONS:
        if isinstance(one.default, bool | int | float) and one.default not in (0, 86_400):
            assert one.parse(one.key, str(one.default)) == one.default, one.key


def test_a_call_of_a_call_is_the_same_and_nothing_is_parsed_twice() -> None:
    call = Call({"Hoodie.Table.Name": "trips", "hoodie.clean.commits.retained": 7})
    again = Call(call)
    assert dict(again) == {"hoodie.table.name": "trips", "hoodie.clean.commits.retained": "7"} and len(call) == 2
    assert call.services().cleaning.commits == 7 and again.services() is call.services()
    assert call.write() is again.write() and call.read() is again.read() and call.stream() is again.stream()
    assert call.write().manager is call.services().manager
    assert call.write().base_files is call.services().base_files
    assert call.read().storage is call.write().manager.storage
    assert call.write().manager.scope == dict(call)


def test_the_same_options_are_parsed_once_whoever_gives_them() -> None:
    given = {"hoodie.table.name": "trips", "hoodie.clean.commits.retained": 7}
    assert Call(dict(given)).write() is Call(dict(given)).write()
    assert Call({**given, "hoodie.clean.commits.retained": 8}).services().cleaning.commits == 8
    texts = [Call({"hoodie.table.name": name})["hoodie.table.name"] for name in (1, True, 1.0, "1")]
    assert texts == ["1", "true", "1.0", "1"], "equal values with other texts"
    fields = ["id", "day"]
    first = Call({"hoodie.datasource.write.recordkey.field": fields}).write()
    fields.append("hour")
    second = Call({"hoodie.datasource.write.recordkey.field": fields}).write()
    assert (first.record_key_fields, second.record_key_fields) == (("id", "day"), ("id", "day", "hour"))


def test_a_call_with_other_values_leaves_the_first_as_it_is() -> None:
    call = Call({"hoodie.table.name": "trips", "hoodie.clean.commits.retained": 7})
    changed = call.having({"hoodie.clean.commits.retained": "8"})
    assert changed.services().cleaning.commits == 8 and changed.write().table_name == "trips"
    assert call.having({"hoodie.clean.commits.retained": "9"}).services().cleaning.commits == 9
    assert call.services().cleaning.commits == 7 and Call().services().cleaning.commits not in (7, 8, 9)


def test_what_a_call_is_not_asked_for_is_not_parsed() -> None:
    call = Call({"hoodie.clean.commits.retained": "many", "columns": "a"})
    assert call.read().columns == ("a",)
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="retained='many'"):
            call.services()


@pytest.mark.parametrize("operation", ["upsert", "insert", "bulkinsert", "delete"])
def test_a_number_of_tasks_is_checked_for_the_operation_that_it_is_of(operation: str) -> None:
    key = f"hoodie.{operation}.shuffle.parallelism"
    own = {"hoodie.datasource.write.operation": "bulk_insert" if operation == "bulkinsert" else operation}
    with pytest.raises(InvalidRequest, match=f"{key}=0 is out of range"):
        Call({key: 0, **own}).write()
    other = {"hoodie.datasource.write.operation": "insert" if operation == "upsert" else "upsert"}
    assert Call({key: 0, **other}).write().parallelism is None  # jobs of Hudi say so, where 0 is the default
    assert Call({key: 3, "hoodie.datasource.write.operation": "insert_overwrite"}).write().parallelism == (
        3 if operation == "insert" else None
    )
