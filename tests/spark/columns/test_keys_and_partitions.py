"""Keys and partitions of any text: the same rows for every reader, or one error that says what cannot be."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
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
PARTITION = "hoodie.datasource.write.partitionpath.field"
TIMES = "hoodie.keygen.timebased."
NOON = datetime(2024, 1, 31, 12, tzinfo=timezone.utc)
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
        ("a:b", "'a:b' of the partition field 'part' is no safe folder name: replace such values, or make the table"),
        ("a//b", "'a//b' of the partition field 'part' has an empty name between slashes: replace it"),
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
    rows = [("x y", 1, 1), ("x y", None, 1), ("", 1, 1), (None, 1, 1), ("ü名/=%", 1, 1), ("10:30:00,,5", 1, 1)]
    table.write(rows, local=False)
    table.write([(a, b, 2) for a, b, _ in rows], local=False)
    assert table.read() == sorted(((a, b, 2) for a, b, _ in rows), key=repr)
    with pytest.raises(InvalidRequest, match="have ',' and a ':' behind it in 'a', one of several record key fields"):
        table.write([("x,b:1", 1, 1)])


def test_folders_of_times_are_those_of_hudis_timestamp_based_key_generator(make_table: MakeTable) -> None:
    table = make_table("id long, ts long, at timestamp", partition="at")
    table.options[GENERATOR] = f"{KEYGEN}.TimestampBasedKeyGenerator"
    with pytest.raises(InvalidRequest, match=r"timestamp\.type='': it is needed, as one of UNIX_TIMESTAMP"):
        table.write([(1, 1, NOON)])
    table.options |= {f"{TIMES}timestamp.type": "EPOCHMICROSECONDS", f"{TIMES}output.dateformat": "yyyy/MM/dd"}
    with pytest.raises(InvalidRequest, match=r"keygen\.timebased\.timezone is needed"):
        table.write([(1, 1, NOON)])
    table.options[f"{TIMES}timezone"] = "Europe/Paris"
    table.write([(1, 1, NOON), (2, 1, NOON + timedelta(hours=11)), (3, 1, None)], local=False)
    del table.options[GENERATOR]
    table.write([(1, 2, NOON + timedelta(hours=1))])
    table.compact()
    assert sorted(row[:2] for row in table.read()) == [(1, 2), (2, 1), (3, 1)]
    partitions = {row[0] for row in table.read(None, "_hoodie_partition_path")}
    assert partitions == {"2024/01/31", "2024/02/01", "1970/01/01"}
    with pytest.raises(InvalidRequest, match=r"timezone=UTC, and the table 'trips' was made with Europe/Paris"):
        table.write([(1, 1, NOON)], **{f"{TIMES}timezone": "UTC"})
    one = lakelatch.Table(table.spark, table.path)
    one.delete("id = 2")
    one.update("id = 1", {"ts": "ts + 1"})
    assert sorted(row[:2] for row in table.read()) == [(1, 3), (3, 1)]
    with pytest.raises(InvalidRequest, match="makes folders of times"):
        one.insert(table.frame([(9, 1, NOON)]))
    for policy in ("drop", "fail"):
        more = {"hoodie.datasource.write.operation": "insert", "hoodie.datasource.insert.dup.policy": policy}
        with pytest.raises(InvalidRequest, match=f"dup.policy={policy} compares columns, and the table"):
            table.write([(1, 9, NOON)], **more)
    with pytest.raises(InvalidRequest, match="makes folders of times"):
        one.update("id = 1", {"at": "NULL"})


def test_a_custom_key_generator_has_a_kind_for_each_field(make_table: MakeTable) -> None:
    table = make_table("id long, ts long, region string, day string", partition="region:simple,day:timestamp")
    table.options |= {GENERATOR: f"{KEYGEN}.CustomKeyGenerator", f"{TIMES}timestamp.type": "DATE_STRING"}
    table.options |= {f"{TIMES}input.dateformat": "yyyy-MM-dd", f"{TIMES}output.dateformat": "yyyy/MM"}
    table.options[f"{TIMES}timezone"] = "UTC"
    rows = [(1, 1, "eu", "2024-01-31"), (2, 1, None, "2024-02-01"), (3, 1, "us", None)]
    table.write(rows, local=False)
    assert table.read() == sorted(rows, key=repr)
    partitions = {row[0] for row in table.read(None, "_hoodie_partition_path")}
    assert partitions == {"eu/2024/01", "__HIVE_DEFAULT_PARTITION__/2024/02", "us/1970/01"}
    with pytest.raises(InvalidRequest, match=r"'31\.1\.' of the partition field 'day' is no time of the pattern"):
        table.write([(4, 1, "eu", "31.1.")])
    with pytest.raises(InvalidRequest, match="needs a kind for each field"):
        table.write(rows, **{PARTITION: "region,day"})


def test_slashes_in_the_values_of_one_partition_field_make_folders(make_table: MakeTable) -> None:
    table = make_table("id long, ts long, part string", partition="part")
    rows = [(1, 1, "eu/de"), (2, 1, "eu/fr x"), (3, 1, None)]
    table.write(rows, local=False)
    assert table.read() == sorted(rows, key=repr)
    found = lakelatch.read(table.spark, table.path, None, "part = 'eu/de'")
    assert [row.id for row in found.collect()] == [1] and Path(table.path, "eu/fr x").is_dir()


def test_other_key_generators_are_refused_by_name(make_table: MakeTable) -> None:
    table = make_table(partition="v")
    table.options[GENERATOR] = "my.Own"
    with pytest.raises(InvalidRequest, match=f"{GENERATOR}='my.Own' is not supported") as caught:
        table.write([(1, 1, "a")])
    assert "SimpleKeyGenerator" in caught.value.message and not Path(table.path).exists()
