"""What a read leaves unopened: only what its conditions rule out, whoever made the table."""

from __future__ import annotations

import datetime
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_table import LiveTable, window
from storages.counting import CountingStorage
from table import BuiltTable

from lakelatch.engine.read.plan import plan_read, read_schema
from lakelatch.engine.read.pruning import Bound, Condition, OneOf, Present
from lakelatch.format.file_slices import FileSlice
from lakelatch.storage.local import LocalStorage

PARTITIONS = Path(__file__).parents[2] / "data" / "partitions"
DAY = datetime.date(2024, 1, 31)
SCHEMA = pa.schema(
    [
        *(("id", pa.int64()), ("name", pa.string()), ("ts", pa.int64()), ("v", pa.string())),
        *(("region", pa.string()), ("hour", pa.int32()), ("day", pa.date32()), ("open", pa.bool_())),
    ]
)
VALUES: dict[str, list[Any]] = {
    "id": [*range(12)],
    "name": ["a", "b", "é", "-1"],
    "v": ["v", "w", None],
    "region": ["eu", "us", "", None, "é u", "__HIVE_DEFAULT_PARTITION__", "region=eu", "50%", "a/b", "5"],
    "hour": [0, 5, 23, -1, None],
    "day": [DAY, DAY + datetime.timedelta(1), datetime.date(1969, 12, 31), None],
    "open": [True, False, None],
}
STEPS = (1, 3, 1, 1, 7, 2, 3)  # so that each value meets others
UNFIT = ("50%", "a/b", "region=eu")  # for folders whose names are not encoded


class WideTable(BuiltTable):
    """Of several types, with the options of the test."""

    def __init__(self, root: Path, partitions: str, keys: str, **more: Any) -> None:
        options = {
            "hoodie.datasource.write.recordkey.field": keys,
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.datasource.write.partitionpath.field": partitions,
            "hoodie.bucket.index.num.buckets": 5,
            "hoodie.datasource.write.hive_style_partitioning": more.get("hive", False),
            "hoodie.datasource.write.partitionpath.urlencode": more.get("encoded", False),
        }
        if "hashed" in more:
            options["hoodie.bucket.index.hash.field"] = more["hashed"]
        super().__init__(LocalStorage(str(root)), SCHEMA, options)

    def fill(self) -> None:
        """With rows that between them have every value that the table takes."""
        plain = not self.opened.config.url_encode_partitioning
        values = {
            column: [one for one in found if not (plain and column == "region" and one in UNFIT)]
            for column, found in VALUES.items()
        }
        rows = [
            {
                column: found[(number * step) % len(found)]
                for (column, found), step in zip(values.items(), STEPS, strict=True)
            }
            for number in range(60)
        ]
        data = pa.Table.from_pylist([{**row, "ts": 1} for row in rows], schema=SCHEMA)
        self.begin().put_table(data).commit()


@dataclass(frozen=True)
class Rows:
    """The rows of each slice of a table, read once."""

    path: str
    of_slice: Mapping[FileSlice, list[dict[str, Any]]]

    @classmethod
    def of(cls, root: Path) -> Rows:
        plan = plan_read(str(root))
        read = {one: [row for batch in plan.read(one) for row in batch.to_pylist()] for one in plan.slices}
        return cls(str(root), read)

    def planned(self, *conditions: Condition) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The rows that fulfil conditions: of what is planned for these, and of everything."""
        slices = plan_read(self.path, conditions=conditions).slices
        return _fulfilling(self.of_slice, slices, conditions), _fulfilling(self.of_slice, self.of_slice, conditions)


def _fulfilling(
    rows: Mapping[FileSlice, list[dict[str, Any]]], slices: Iterable[FileSlice], conditions: Sequence[Condition]
) -> list[dict[str, Any]]:
    found = (row for one in slices for row in rows[one] if all(each.allows(row[each.column]) for each in conditions))
    return sorted(found, key=repr)


def conditions_on(column: str) -> st.SearchStrategy[Condition]:
    values = st.sampled_from(VALUES[column])
    comparisons = st.sampled_from(["<", "<=", ">", ">="])
    bounds = st.builds(Bound, st.just(column), comparisons, values.filter(lambda value: value is not None))
    lists = st.builds(OneOf, st.just(column), st.lists(values, max_size=3).map(tuple))
    return st.one_of(lists, st.just(OneOf(column, (None,))), st.just(Present(column)), bounds)


@pytest.fixture(
    scope="module",
    params=[
        ("region", "id", {}),
        ("region", "id,name", {"hashed": "name", "hive": True}),
        ("region,hour", "id", {"encoded": True}),
        ("hour,region", "name,id", {"hive": True, "encoded": True}),
        ("day,open", "name", {}),
        ("open,day,hour", "id,name", {"hive": True}),
    ],
    ids=lambda one: one[0],
)
def wide_rows(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    partitions, keys, more = request.param
    table = WideTable(tmp_path_factory.mktemp("wide") / "t", partitions, keys, **more)
    table.fill()
    return Rows.of(table.root)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(list(VALUES)).flatmap(conditions_on), min_size=1, max_size=4))
def test_rows_are_those_of_a_plain_filter(wide_rows: Rows, conditions: list[Condition]) -> None:
    found, expected = wide_rows.planned(*conditions)
    assert found == expected


@pytest.mark.parametrize("hashed", ["id", "name", "name,id", None])
def test_each_row_is_found_by_its_key_and_by_parts_of_it(tmp_path: Path, hashed: str | None) -> None:
    """Whichever part of the record key chooses the bucket, and is named in the order of the key or in another one."""
    more = {} if hashed is None else {"hashed": hashed}
    table = WideTable(tmp_path / "t", "region", "id,name", encoded=True, **more)
    table.fill()
    rows = Rows.of(table.root)
    left_out = 0
    everything = {(row["id"], row["name"]) for some in rows.of_slice.values() for row in some}
    assert len(everything) == 12 and len({one.file_id for one in rows.of_slice}) > 2
    for number, name in sorted(everything):
        by_id, by_name = OneOf("id", (number,)), OneOf("name", (name,))
        for conditions in ((by_id, by_name), (by_name, by_id), (by_id,), (by_name,)):
            found, expected = rows.planned(*conditions)
            assert found == expected != []
            left_out += len(rows.of_slice) - len(plan_read(rows.path, conditions=conditions).slices)
    assert left_out > 50


@pytest.mark.parametrize("name", [path.stem for path in sorted(PARTITIONS.glob("*.zip")) if "dropped" not in path.stem])
def test_rows_of_java_tables_are_those_of_a_plain_filter(tmp_path: Path, name: str) -> None:
    """Whatever its key generators make of values: folders of several levels, days with slashes, encoded texts."""
    with zipfile.ZipFile(PARTITIONS / f"{name}.zip") as archive:
        archive.extractall(tmp_path)
    (root,) = tmp_path.iterdir()
    rows = Rows.of(root)
    everything = [row for some in rows.of_slice.values() for row in some]
    assert len(everything) == 5
    for column in [column for column in everything[0] if not column.startswith("_hoodie")]:
        for value in {row[column] for row in everything}:
            for one in (OneOf(column, (value,)), Bound(column, ">=", value), Bound(column, "<", value)):
                found, expected = rows.planned(one)
                assert found == expected


def test_java_may_put_a_text_with_slashes_into_a_table_that_was_made_here(tmp_path: Path) -> None:
    """Such a folder lies below one of another name, which is no reason not to open that."""
    table = LiveTable(tmp_path / "t")
    for partition, key in (("eu", 1), ("us", 2)):
        table.write([(key, 1, "v")], partition)
    (table.root / "eu").rename(table.root / "moved")
    (table.root / "eu").mkdir()
    (table.root / "moved").rename(table.root / "eu" / "de")
    for condition in (OneOf("part", ("eu/de",)), Bound("part", ">", "eu"), Bound("part", ">=", "eu/de")):
        found = plan_read(str(table.root), conditions=[condition]).slices
        assert "eu/de" in {one.partition for one in found}
    assert {one.partition for one in plan_read(str(table.root), conditions=[OneOf("part", ("us",))]).slices} == {"us"}


# -- what it opens ----------------------------------------------------------------------------------------------------


@pytest.fixture
def far(request: pytest.FixtureRequest, tmp_path: Path) -> CountingStorage:
    """A table of three regions with three hours each, keyed by `id`."""
    table = WideTable(tmp_path / "t", "region,hour", "id")
    rows = [
        {"id": number, "name": "a", "ts": 1, "region": region, "hour": hour}
        for number in range(20)
        for region in ("eu", "us", "as")
        for hour in (1, 2, 3)
    ]
    table.begin().put_table(pa.Table.from_pylist(rows, schema=SCHEMA)).commit()
    far = CountingStorage(request.node.name)
    for path in table.storage.walk(""):
        far.put(path, table.storage.read(path))
    far.listed_at_once = 1
    read_schema(far.uri)  # which a process reads of each commit once
    return far


def opened(far: CountingStorage, *conditions: Condition) -> tuple[list[str], int, int]:
    """The folders of data that were listed, the slices that were found, and the steps that it took."""
    far.forget()
    plan = plan_read(far.uri, conditions=conditions)
    folders = [one.path for one in far.calls if one.operation == "list" and not one.path.startswith(".hoodie")]
    return folders, len(plan.slices), far.steps


def test_partitions_that_are_named_are_opened_alone(far: CountingStorage) -> None:
    both = OneOf("region", ("eu",)), OneOf("hour", (2, 3, 7))
    assert opened(far, *both) == (["eu/2", "eu/3", "eu/7"], 10, 3)
    assert opened(far, OneOf("region", ("nowhere",)), OneOf("hour", (1,))) == (["nowhere/1"], 0, 3)


def test_other_conditions_on_partitions_open_what_they_may_lead_to(far: CountingStorage) -> None:
    assert opened(far, OneOf("region", ("us",))) == (["", "us", "us/1", "us/2", "us/3"], 15, 6)
    assert opened(far, OneOf("region", ("us",)), Bound("hour", ">", 1))[:2] == (["", "us", "us/2", "us/3"], 10)
    below = [f"{region}/{hour}" for region in ("as", "eu", "us") for hour in (1, 2, 3)]
    assert opened(far, Bound("hour", "<", 2)) == (["", "as", "eu", "us", *below], 15, 6)
    assert opened(far, Present("region"), OneOf("hour", (None,)))[1] == 0


def test_a_key_is_looked_for_in_its_bucket(far: CountingStorage) -> None:
    everything, one = opened(far)[1], opened(far, OneOf("id", (7,)))[1]
    assert (everything, one) == (45, 9)
    assert opened(far, OneOf("id", (7,)), OneOf("region", ("eu",)), OneOf("hour", (1,))) == (["eu/1"], 1, 3)
    assert opened(far, OneOf("id", ()))[1] == 0
    for other in (OneOf("name", ("a",)), Bound("id", "<", 8), OneOf("id", ("7",)), OneOf("id", (7.0,)), Present("id")):
        assert opened(far, other)[1] == everything, other


def test_an_incremental_read_opens_only_what_was_written_and_is_wanted(tmp_path: Path, far: CountingStorage) -> None:
    begin = window("20200101000000000")
    conditions = OneOf("region", ("eu", "as")), OneOf("hour", (1,)), OneOf("id", (7,))
    plan = plan_read(far.uri, begin, conditions=conditions)
    assert sorted(one.partition for one in plan.slices) == ["as/1", "eu/1"]
