"""Keys and partitions of any text: the same rows for every reader, or one error that says what cannot be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hudi import HudiTableBuilder

import lakelatch
from lakelatch.errors import InvalidRequest

pytestmark = pytest.mark.spark
MakeTable = Callable[..., Any]
HIVE = "hoodie.datasource.write.hive_style_partitioning"
URL = "hoodie.datasource.write.partitionpath.urlencode"
GENERATOR = "hoodie.datasource.write.keygenerator.class"
KEYGEN = "org.apache.hudi.keygen"
PLACES = ["a b", "a/b", "50%", "ü=名", None, "", "x.y", "C:\\d"]


@pytest.mark.parametrize("hive_style", ["true", "false"])
def test_partitions_of_any_text_are_read_back(make_table: MakeTable, hive_style: str) -> None:
    table = make_table("id long, ts long, part string", partition="part")
    table.options.update({HIVE: hive_style, URL: "true", GENERATOR: f"{KEYGEN}.SimpleKeyGenerator"})
    rows = [(number, 1, place) for number, place in enumerate(PLACES)]
    table.write(rows, local=False)
    assert table.read() == sorted(rows, key=repr)
    table.compact()
    assert table.read() == sorted(rows, key=repr), "the values come from the rows"
    found = {str(path.relative_to(table.path)) for path in Path(table.path).iterdir()} - {".hoodie"}
    prefix = "part=" if hive_style == "true" else ""
    encoded = ["a b", "a%2Fb", "50%25", "ü%3D名", "__HIVE_DEFAULT_PARTITION__", "x.y", "C%3A%5Cd"]
    assert found == {f"{prefix}{name}" for name in encoded}
    count = sum(batch.num_rows for batch in HudiTableBuilder.from_base_uri(table.path).build().read())
    assert count == len(rows)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("a/b", "'a/b' of the partition field 'part' is no safe folder name: replace such values, or make the table"),
        (".hoodie", "'.hoodie' of the partition field 'part' would make a hidden or impossible folder: replace it"),
        ("n\0l", "would make a hidden or impossible folder"),
        ("long" * 60, "would make a folder's name of more than 200 bytes, which file systems do not take"),
    ],
)
def test_a_value_that_cannot_be_a_path_is_one_clear_error(make_table: MakeTable, value: str, said: str) -> None:
    table = make_table("id long, ts long, part string", partition="part")
    with pytest.raises(InvalidRequest) as caught:
        table.write([(1, 1, "fine"), (2, 1, value)], local=False)
    assert said in caught.value.message
    assert not lakelatch.Table.is_table(table.path)
    table.write([(1, 1, "fine")])
    assert table.read() == [(1, 1, "fine")]


def test_keys_of_several_fields_tell_null_empty_and_texts_apart(make_table: MakeTable) -> None:
    table = make_table("a string, b long, ts long", key="a,b")
    table.options[GENERATOR] = f"{KEYGEN}.ComplexKeyGenerator"
    rows = [("x y", 1, 1), ("x y", None, 1), ("", 1, 1), (None, 1, 1), ("ü名/=%", 1, 1)]
    table.write(rows, local=False)
    table.write([(a, b, 2) for a, b, _ in rows], local=False)
    assert table.read() == sorted(((a, b, 2) for a, b, _ in rows), key=repr)
    with pytest.raises(InvalidRequest, match="have ',' or ':' in 'a', one of several record key fields"):
        table.write([("x,b:1", 1, 1)])


@pytest.mark.parametrize("name", [f"{KEYGEN}.TimestampBasedKeyGenerator", f"{KEYGEN}.CustomKeyGenerator", "my.Own"])
def test_other_key_generators_are_refused_by_name(make_table: MakeTable, name: str) -> None:
    table = make_table(partition="v")
    table.options[GENERATOR] = name
    with pytest.raises(InvalidRequest, match=f"{GENERATOR}='{name}' is not supported") as caught:
        table.write([(1, 1, "a")])
    assert "SimpleKeyGenerator" in caught.value.message and not Path(table.path).exists()
