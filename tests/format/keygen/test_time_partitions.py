"""Folders and keys are those that Java Hudi made of the same rows."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakelatch.errors import InvalidRequest
from lakelatch.format.avro import avro_to_arrow, with_meta_columns
from lakelatch.format.keygen.paths import partition_paths
from lakelatch.format.keygen.time_partitions import TimePartitions
from lakelatch.format.merge.slice import merge_slice
from lakelatch.format.record_keys import record_keys
from lakelatch.format.slices.table_view import TableView
from lakelatch.storage.local import LocalStorage
from lakelatch.timeline.table_config import TIME_OPTIONS, load_table_config

TABLES = Path(__file__).parents[2] / "data" / "partitions"
JAVA = ["complex_one_key", "custom", "nested", "nonpartitioned", "simple_hive_url", "simple_slashes", "timestamp"]
MOMENT = datetime(2024, 3, 31, 23, 30, tzinfo=timezone.utc)
MOMENT_S = 1711927800


def times(kind: str, **more: str) -> TimePartitions:
    given = {"timestamp.type": kind, "output.dateformat": "yyyy-MM-dd HH", "timezone": "UTC"}
    given |= {name.replace("_", "."): value for name, value in more.items()}
    return TimePartitions.of({f"{TIME_OPTIONS}{name}": value for name, value in given.items()})


def texts(options: TimePartitions, *values: Any, kind: pa.DataType | None = None) -> list[str]:
    return list(options.texts(pa.chunked_array([pa.array(values, kind)]), "at").to_pylist())


@pytest.mark.parametrize("name", JAVA)
def test_keys_and_folders_are_javas(name: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(TABLES / f"{name}.zip") as archive:
        archive.extractall(tmp_path)
    storage = LocalStorage(str(next(tmp_path.iterdir())))
    config = load_table_config(storage)
    if name == "custom":  # of such a table Java does not write down how folders are made of times
        given = {"timestamp.type": "EPOCHMILLISECONDS", "output.dateformat": "yyyy/MM/dd", "timezone": "UTC"}
        config = replace(config, time_options=tuple((f"{TIME_OPTIONS}{key}", value) for key, value in given.items()))
    view = TableView.load(storage, config)
    schema = with_meta_columns(avro_to_arrow(view.metadata(view.timeline.completed[-1]).schema or ""))
    rows = pa.concat_tables([merge_slice(storage, found, schema, config, {}).rows for found in view.slices()])
    assert rows.num_rows == 5
    assert partition_paths(rows, config).to_pylist() == rows["_hoodie_partition_path"].to_pylist()
    keys = record_keys(rows, config.record_key_fields, bool(config.prefixed_keys))
    assert keys.to_pylist() == rows["_hoodie_record_key"].to_pylist()


def test_numbers_are_times_of_their_unit() -> None:
    noon = "2024-03-31 23"
    assert texts(times("UNIX_TIMESTAMP"), MOMENT_S, None) == [noon, "1970-01-01 00"]
    assert texts(times("EPOCHMILLISECONDS"), MOMENT_S * 1000, -1) == [noon, "1969-12-31 23"]
    assert texts(times("EPOCHMICROSECONDS"), MOMENT_S * 1_000_000, -999) == [noon, "1970-01-01 00"]
    assert texts(times("EPOCHMICROSECONDS"), MOMENT, kind=pa.timestamp("us", "UTC")) == [noon]
    assert texts(times("SCALAR", timestamp_scalar_time_unit="days"), date(2024, 3, 31)) == ["2024-03-31 00"]
    assert texts(times("SCALAR"), Decimal(f"{MOMENT_S}.9"), kind=pa.decimal128(20, 1)) == [noon]
    assert texts(times("UNIX_TIMESTAMP"), MOMENT_S + 0.9) == [noon]


def test_folders_are_in_the_zone_of_the_output() -> None:
    assert texts(times("UNIX_TIMESTAMP", timezone="Europe/Paris"), MOMENT_S) == ["2024-04-01 01"]
    assert texts(times("UNIX_TIMESTAMP", timezone="GMT-8:00"), MOMENT_S) == ["2024-03-31 15"]
    fine = times("EPOCHMILLISECONDS", output_dateformat="yy'y'M d''HHmmssSSS")
    assert texts(fine, MOMENT_S * 1000 + 45) == ["24y3 31'233000045"]


@pytest.mark.parametrize(
    ("pattern", "text", "folder"),
    [
        ("yyyy-MM-dd'T'HH:mm:ss.SSSZ", "2024-03-31T01:30:00.000+0200", "2024-03-30 23"),
        ("yyyy-MM-dd'T'HH:mm:ssZZ", "2024-03-31T23:30:00Z", "2024-03-31 23"),
        ("yyyyMMdd", "20240331", "2024-03-30 23"),
        ("yyyy-MM-dd", "2024-3-1", "2024-02-29 23"),
        ("dd.MM.yyyy,yyyy-MM", "2024-07", "2024-06-30 22"),
        ("yyyy-MM-dd HH:mm", "2024-10-27 02:30", "2024-10-27 00"),  # which there is twice: the earlier one
        ("yyyy-MM-dd", None, "1969-12-31 23"),
    ],
)
def test_texts_are_read_in_their_own_zone_or_that_of_the_input(pattern: str, text: str | None, folder: str) -> None:
    zones = {"timezone": "", "input_timezone": "Europe/Paris", "output_timezone": "UTC"}
    assert texts(times("DATE_STRING", input_dateformat=pattern, **zones), text, kind=pa.string()) == [folder]


@pytest.mark.parametrize("text", ["202411", "2024-13-01", "2024-02-30", "", "2024-03-31 ", "x2024-03-31"])
def test_texts_that_are_no_times_are_refused(text: str) -> None:
    options = times("DATE_STRING", input_dateformat="yyyyMMdd,yyyy-MM-dd")
    with pytest.raises(InvalidRequest, match=f"value '{text}' of the partition field 'at' is no time of the pattern"):
        texts(options, text)


def test_times_that_clocks_have_left_out_are_refused() -> None:
    options = times("DATE_STRING", input_dateformat="yyyy-MM-dd HH:mm", timezone="Europe/Paris")
    with pytest.raises(InvalidRequest, match="is no time of the pattern"):
        texts(options, "2024-03-31 02:30")


@pytest.mark.parametrize(
    ("kind", "more", "said"),
    [
        ("WEEKS", {}, "it is needed, as one of UNIX_TIMESTAMP"),
        ("SCALAR", {"timestamp_scalar_time_unit": "weeks"}, r"time\.unit=WEEKS"),
        ("UNIX_TIMESTAMP", {"output_dateformat": ""}, r"output\.dateformat is needed"),
        ("UNIX_TIMESTAMP", {"output_dateformat": "yyyy-MMM"}, "has 'MMM': known are"),
        ("UNIX_TIMESTAMP", {"output_dateformat": "yyyy'"}, "is no pattern of times"),
        ("UNIX_TIMESTAMP", {"output_dateformat": "yyyyXX"}, "has 'XX'"),
        ("UNIX_TIMESTAMP", {"timezone": "Mars/North"}, "'Mars/North' is no zone"),
        ("UNIX_TIMESTAMP", {"timezone": "GMT+25"}, r"'GMT\+25' is no zone"),
        ("UNIX_TIMESTAMP", {"timezone": "localtime"}, "'localtime' is no zone"),
        ("UNIX_TIMESTAMP", {"timezone": ""}, "timezone is needed"),
        ("DATE_STRING", {}, r"needs hoodie\.keygen\.timebased\.input\.dateformat"),
    ],
)
def test_options_that_say_no_folder_are_refused(kind: str, more: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        times(kind, **more)


def test_columns_that_do_not_go_with_the_kind_are_refused() -> None:
    for kind, values in (("UNIX_TIMESTAMP", ["2024"]), ("UNIX_TIMESTAMP", [MOMENT]), ("EPOCHMILLISECONDS", [True])):
        with pytest.raises(InvalidRequest, match="makes no folder: texts go with DATE_STRING"):
            texts(times(kind), *values)
    with pytest.raises(InvalidRequest, match="is no time of 1 to 9999"):
        texts(times("UNIX_TIMESTAMP"), 2**62)
