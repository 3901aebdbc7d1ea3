"""The sink of the data source "lumberjack": what rows become, and what is wrong with its options."""

import json

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructType

from penstock.errors import SparkError
from penstock.lumberjack import Receiver, Spool, SpoolReader
from penstock.spark.lumberjack import LumberjackDataSource


def test_a_sink_ships_json_of_what_json_has_nothing_for(tmp_path):
    kinds = pa.schema(
        [
            ("f", pa.float64()),
            ("m", pa.map_(pa.int32(), pa.list_(pa.map_(pa.string(), pa.float32())))),
            ("b", pa.binary()),
        ]
    )
    rows = pa.RecordBatch.from_pylist(
        [{"f": float("nan"), "m": [(1, [[("k", float("inf"))]])], "b": b"a"}, {"f": float("-inf"), "m": None}], kinds
    )
    with Spool(tmp_path / "spool") as spool, Receiver(spool=spool) as receiver:
        schema = StructType().add("n", IntegerType())
        for frames in ("json", "map"):
            options = {"address": receiver.address, "frames": frames}
            writer = LumberjackDataSource(options).writer(schema, overwrite=False)
            assert writer.write(iter([rows])).events == 2
        schema = StructType().add("event", StringType())
        writer = LumberjackDataSource({"address": receiver.address}).writer(schema, overwrite=False)
        assert writer.write(iter([pa.record_batch({"event": [None, '{"n":1}']})])).events == 2
    found = [row for batch in SpoolReader(tmp_path / "spool").read() for row in batch.to_pylist()]
    assert [json.loads(str(row["event"])) for row in found if row["event"] is not None] == [
        {"f": "NaN", "m": {"1": [{"k": "Infinity"}]}, "b": "YQ=="},
        {"f": "-Infinity", "m": None, "b": None},
        {"event": None},
        {"n": 1},
    ]
    pairs = [row["fields"] for row in found if row["fields"] is not None]
    assert pairs == [[("f", "NaN"), ("m", '{"1":[{"k":"Infinity"}]}'), ("b", "YQ==")], [("f", "-Infinity")]]
    assert all(not row["tags"] for row in found)


@pytest.mark.parametrize(
    ("options", "column", "message"),
    [
        ({}, "n", "lumberjack sink requires an address"),
        ({"address": "nowhere"}, "n", "HOST:PORT"),
        ({"address": "127.0.0.1:1"}, "event", "must be a string with JSON"),
        ({"address": "127.0.0.1:1", "compress": "10"}, "n", "from 0 to 9"),
        ({"address": "127.0.0.1:1", "frames": "D"}, "n", "json or map"),
        ({"address": "logs.example.com:1"}, "n", "is not on this machine: set fingerprint, ca or system_ca"),
        ({"address": "127.0.0.1:1", "ca": "x", "system_ca": "true"}, "n", "one of the options"),
        ({"address": "127.0.0.1:1", "cert": "x"}, "n", "must be used together"),
    ],
)
def test_wrong_options_of_a_sink_are_named(options, column, message):
    with pytest.raises(SparkError, match=message):
        LumberjackDataSource(options).writer(StructType().add(column, IntegerType()), overwrite=False)
