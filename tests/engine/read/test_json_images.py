"""Rows as the JSON of Hudi's images."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa

from lakelatch.engine.read.rows.json_images import json_texts


def test_values_of_all_types_are_rendered_as_hudi_does() -> None:
    moment = datetime(1969, 12, 31, 23, 59, 59, 999_999, timezone.utc)
    stamp = pa.timestamp("us", "UTC")
    row = pa.RecordBatch.from_pydict(
        {
            "text": pa.array(['"ü"\n']),
            "flag": pa.array([True]),
            "day": pa.array([date(1970, 1, 2)]),
            "time": pa.array([moment], stamp),
            "price": pa.array([Decimal("1.50")], pa.decimal128(38, 2)),
            "narrow": pa.array([0.1], pa.float32()),
            "none": pa.array([float("-inf")]),
            "bytes": pa.array([b"\x00\xff"]),
            "nested": pa.array(
                [{"a": [moment, None], "b": None}], pa.struct([("a", pa.list_(stamp)), ("b", pa.int64())])
            ),
            "pairs": pa.array([[("k", 2.5)]], pa.map_(pa.string(), pa.float64())),
        }
    )
    assert json_texts(row) == [
        '{"text":"\\"ü\\"\\n","flag":true,"day":1,"time":-1,"price":1.50,"narrow":0.1,"none":"-Infinity",'
        '"bytes":"AP8=","nested":{"a":[-1,null],"b":null},"pairs":{"k":2.5}}'
    ]
    assert json.loads(json_texts(row)[0])["price"] == 1.5


def test_nulls_are_members_too() -> None:
    row = pa.RecordBatch.from_pydict({"a": pa.nulls(1, pa.decimal128(5, 2)), "b": pa.nulls(1, pa.list_(pa.date32()))})
    assert json_texts(row) == ['{"a":null,"b":null}']
