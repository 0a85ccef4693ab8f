"""Arrow schemas and Avro's, there and back."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest

from lakelatch.errors import CorruptTable, InvalidRequest
from lakelatch.format.avro import (
    META_COLUMNS,
    arrow_to_avro,
    avro_to_arrow,
    avro_with_meta_columns,
    comment_of,
    decimal_bytes,
    with_comment,
    with_meta_columns,
    without_meta_columns,
)
from lakelatch.timeline.metadata import CommitMetadata

DATA = Path(__file__).parents[1] / "data"
ELEMENT = pa.field("element", pa.struct([("date", pa.date32()), ("deep", pa.map_(pa.string(), pa.float64()))]))
EVERYTHING = pa.schema(
    [
        ("boolean", pa.bool_()),
        ("int", pa.int32()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("string", pa.string()),
        ("binary", pa.binary()),
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestamp_ntz", pa.timestamp("us")),
        ("decimal", pa.decimal128(38, 18)),
        ("small_decimal", pa.decimal128(1, 0)),
        ("array", pa.list_(pa.field("element", pa.decimal128(10, 2)))),
        ("map", pa.map_(pa.string(), pa.list_(pa.field("element", pa.int32())))),
        ("struct", pa.struct([("array", pa.list_(ELEMENT)), ("decimal", pa.decimal128(5, 5))])),
        ("again", pa.struct([("struct", pa.struct([("struct", pa.int64())]))])),
    ]
)


def test_every_type_comes_back() -> None:
    assert avro_to_arrow(arrow_to_avro(EVERYTHING, "t")) == EVERYTHING
    with_meta = with_meta_columns(EVERYTHING)
    assert avro_to_arrow(arrow_to_avro(with_meta, "t")) == with_meta


def test_comments_are_docs_as_in_hudi_also_within_structs() -> None:
    inner = with_comment("b", pa.int64(), 'in "it", ümläut')
    schema = pa.schema([with_comment("id", pa.int64(), "the key"), ("s", pa.struct([inner, ("c", pa.int32())]))])
    avro = arrow_to_avro(with_meta_columns(schema), "t")
    fields = {field["name"]: field for field in json.loads(avro)["fields"]}
    assert fields["id"]["doc"] == "the key" and "doc" not in fields["s"]
    assert [fields[name]["doc"] for name in META_COLUMNS] == [""] * 5
    there = avro_to_arrow(avro)
    assert there.equals(with_meta_columns(schema), check_metadata=True)
    assert comment_of(there.field("s").type.field("b")) == 'in "it", ümläut'


@pytest.mark.parametrize("doc", [7, {"a": 1}, None, "", "\ud800"])
def test_docs_that_are_no_texts_are_no_comments(doc: object) -> None:
    field = {"name": "a", "type": ["null", "int"], "doc": doc}
    there = avro_to_arrow(json.dumps({"type": "record", "name": "r", "fields": [field]}))
    assert comment_of(there.field("a")) == ("?" if doc == "\ud800" else "")


def test_the_json_is_valid_avro_and_every_value_may_be_null() -> None:
    record = json.loads(arrow_to_avro(EVERYTHING, "t"))
    fastavro.parse_schema(record)
    assert (record["name"], record["namespace"]) == ("t_record", "hoodie.t")
    for field in record["fields"]:
        assert field["type"][0] == "null" and len(field["type"]) == 2 and field["default"] is None
    kinds = {field["name"]: field["type"][1] for field in record["fields"]}
    assert kinds["array"]["items"][0] == kinds["map"]["values"][0] == "null"
    assert kinds["timestamp"] == {"type": "long", "logicalType": "timestamp-micros"}
    assert kinds["timestamp_ntz"] == {"type": "long", "logicalType": "local-timestamp-micros"}
    assert kinds["decimal"] == {
        "type": "fixed",
        "name": "fixed",
        "namespace": "hoodie.t.t_record.decimal",
        "size": 16,
        "logicalType": "decimal",
        "precision": 38,
        "scale": 18,
    }


@pytest.mark.parametrize("table", ["my-table", "2024", "ünï"])
def test_record_names_are_made_from_any_table_name(table: str) -> None:
    parsed = fastavro.parse_schema(json.loads(arrow_to_avro(EVERYTHING, table)))
    assert isinstance(parsed, dict) and len(parsed["fields"]) == len(EVERYTHING.names)


def test_meta_columns() -> None:
    data = pa.schema([("a", pa.int32()), ("b", pa.string())])
    whole = with_meta_columns(data)
    assert whole.names == [*META_COLUMNS, "a", "b"]
    assert with_meta_columns(whole) == whole
    assert without_meta_columns(whole) == data
    avro = avro_with_meta_columns(arrow_to_avro(data, "t"))
    assert avro_with_meta_columns(avro) == avro
    assert json.loads(avro) == json.loads(arrow_to_avro(whole, "t"))


def test_schemas_of_java_are_understood() -> None:
    for path in sorted(DATA.glob("*.zip")):
        with zipfile.ZipFile(path) as archive:
            (last,) = [
                name
                for name in sorted(archive.namelist())
                if name.endswith("commit") and "__MACOSX" not in name and "/metadata/" not in name and "/._" not in name
            ][-1:]
            text = CommitMetadata.from_avro(archive.read(last)).schema or ""
        schema = avro_to_arrow(text)
        assert avro_to_arrow(arrow_to_avro(schema, "t")) == schema
        ours = json.loads(arrow_to_avro(schema, json.loads(text)["namespace"].partition(".")[2]))
        if "array" not in text and "map" not in text:  # Java puts null last inside those
            assert ours == json.loads(text)


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        (pa.large_string(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.dictionary(pa.int32(), pa.string()), pa.string()),
        (pa.timestamp("us", "Europe/Paris"), pa.timestamp("us", "UTC")),
        (pa.timestamp("ms", "Europe/Paris"), pa.timestamp("ms", "UTC")),
        (pa.timestamp("ms"), pa.timestamp("ms")),
        (pa.large_list(pa.int32()), pa.list_(pa.field("element", pa.int32()))),
    ],
)
def test_other_encodings_become_those_of_spark(stored: pa.DataType, read: pa.DataType) -> None:
    assert avro_to_arrow(arrow_to_avro(pa.schema([("c", stored)]), "t")).field("c").type == read


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ([("c", pa.null())], "'c' is void, which Hudi's tables do not have: cast it"),
        ([("c", pa.int8())], "'c' is tinyint, .*: cast it to int"),
        ([("c", pa.list_(pa.int16()))], "'c' is smallint, .*: cast it to int"),
        ([("c", pa.uint32())], "'c' is uint32, .*: cast it to bigint"),
        ([("c", pa.uint64())], "'c' is uint64"),
        ([("c", pa.timestamp("ns"))], r"'c' is timestamp\[ns\]"),
        ([("c", pa.float16())], "'c' is halffloat, .*: cast it to float"),
        ([("c", pa.duration("us"))], "'c' is interval day to second"),
        ([("c", pa.struct([("d", pa.list_(pa.time64("us")))]))], r"'c\.d' is time64"),
        ([("c", pa.map_(pa.int32(), pa.string()))], "'c' is map<int,string>, .*: cast it to one whose keys are texts"),
        ([("c", pa.struct([]))], "'c' is struct<>"),
        ([("c d", pa.int32())], "column name 'c d'"),
        ([("1c", pa.int32())], "column name '1c'"),
        ([("²", pa.int32())], "column name '²'"),
        ([("c", pa.struct([("d.e", pa.int32())]))], r"column name 'c\.d\.e'"),
        ([("c", pa.int32()), ("c", pa.string())], "c occur more than once"),
    ],
)
def test_what_readers_cannot_take_is_refused(schema: list[tuple[str, pa.DataType]], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        arrow_to_avro(pa.schema(schema), "t")


def test_named_types_that_are_used_twice() -> None:
    point = {"type": "record", "name": "point", "fields": [{"name": "x", "type": "int"}]}
    fields = [{"name": "a", "type": point}, {"name": "b", "type": ["point", "null"]}]
    schema = avro_to_arrow(json.dumps({"type": "record", "name": "r", "namespace": "n", "fields": fields}))
    assert schema.field("b").type == schema.field("a").type == pa.struct([("x", pa.int32())])


@pytest.mark.parametrize("text", ["", "{}", "[]", '"string"', '{"type": "record", "name": "r"}'])
def test_text_that_is_no_record_schema_is_corrupt(text: str) -> None:
    with pytest.raises(CorruptTable, match="no Avro record schema"):
        avro_to_arrow(text)


@pytest.mark.parametrize("kind", [["int", "string"], ["null"], [{"type": "string"}, "int", "null"]])
def test_unions_that_spark_cannot_hold_are_refused(kind: object) -> None:
    text = json.dumps({"type": "record", "name": "r", "fields": [{"name": "c", "type": kind}]})
    with pytest.raises(InvalidRequest, match="'c' is a union"):
        avro_to_arrow(text)


def test_decimals_take_the_least_bytes() -> None:
    """Against the sizes of fixed decimals that Spark writes."""
    assert [decimal_bytes(precision) for precision in (1, 2, 3, 9, 10, 15, 18, 19, 38)] == [1, 1, 2, 4, 5, 7, 8, 9, 16]
