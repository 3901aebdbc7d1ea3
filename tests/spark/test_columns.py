"""Columns of Python values: the same as pyarrow makes, without importing pandas."""

import datetime
import subprocess
import sys
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock._columns import column, rows_batch
from penstock.spark.schemas import COMPOSITE_ARROW_SCHEMA

_NODE = pa.struct([pa.field("path", pa.list_(pa.string())), pa.field("bytes", pa.int64())])

_STAGES = """
import sys
import pyarrow as pa
from penstock.quicx import Task
from penstock.spark._divide import Divide
from penstock.spark._placed import PLACED_SCHEMA, with_note
from penstock.spark._sizes import Sizes
from penstock.spark.documents_source import DocumentsReader
from penstock.spark.functions import Dehydrate
from penstock.spark.quicx.source import QuicxPartition

reader = DocumentsReader((sys.argv[1],), 1 << 20, 1)
listed = [batch for partition in reader.partitions() for batch in reader.read(partition)]
sized = list(Sizes(pa.schema([]), {})(iter(listed)))
paths = listed[0].column("path")
ordinals = pa.nulls(len(paths), pa.int64())
tasks = pa.RecordBatch.from_arrays([ordinals, paths], ["ordinal", "path"])
divided = list(Divide(Dehydrate("127.0.0.1:1"), 1 << 30, 1 << 20)(iter([tasks])))
placed = [pa.nulls(2, field.type) for field in PLACED_SCHEMA]
noted = with_note(pa.RecordBatch.from_arrays(placed, schema=PLACED_SCHEMA), 7)
queued = list(QuicxPartition((Task(1, "a", b"b"),), ("id", "payload")).read())
print(*[sum(batch.num_rows for batch in each) for each in (listed, sized, divided, [noted], queued)])
print("pandas" in sys.modules)
"""


@pytest.mark.parametrize(
    ("values", "data_type"),
    [
        (["a", None, "", "ä\U0001f600"], pa.string()),
        (["a", None], pa.large_string()),
        ([b"a", None, b"\xff"], pa.binary()),
        ([b"a", None], pa.large_binary()),
        ([True, None, False], pa.bool_()),
        ([1, None, -(2**31)], pa.int32()),
        ([1, None, 2**63 - 1], pa.int64()),
        ([1, None, -1], pa.timestamp("us", tz="UTC")),
        ([["a", None], None, []], pa.list_(pa.string())),
        ([[["a"]], None, [None, []]], pa.list_(pa.list_(pa.string()))),
        ([[{"path": ["a"], "bytes": 1}, {"path": [], "bytes": None}], [None], None], pa.list_(_NODE)),
        ([], pa.list_(_NODE)),
    ],
    ids=str,
)
def test_a_column_is_what_pyarrow_makes(values, data_type):
    made = column(values, data_type)
    made.validate(full=True)
    assert made.type == data_type
    assert made.equals(pa.array(values, data_type))


def test_rows_lack_what_is_null():
    rows = [{"document": "a", "tree": []}, {}]
    batch = rows_batch(rows, COMPOSITE_ARROW_SCHEMA)
    assert batch.schema == COMPOSITE_ARROW_SCHEMA
    assert batch.equals(pa.RecordBatch.from_pylist(rows, COMPOSITE_ARROW_SCHEMA))
    assert rows_batch([], COMPOSITE_ARROW_SCHEMA).num_rows == 0


@pytest.mark.parametrize(
    ("values", "data_type", "error"),
    [
        ([1], pa.string(), TypeError),
        (["a"], pa.binary(), TypeError),
        (["a"], pa.int64(), TypeError),
        ([2**31], pa.int32(), OverflowError),
        ([2**63], pa.int64(), OverflowError),
        (["\udcff"], pa.string(), UnicodeEncodeError),
        ([1], pa.list_(pa.string()), TypeError),
        ([{"path": []}], _NODE, KeyError),
        ([Decimal(1)], pa.decimal128(5), TypeError),
        ([datetime.date(2026, 1, 1)], pa.date32(), TypeError),
    ],
    ids=str,
)
def test_other_values_are_refused(values, data_type, error):
    with pytest.raises(error):
        column(values, data_type)


def test_the_stages_of_a_job_import_no_pandas(tmp_path):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(name)
    command = [sys.executable, "-c", _STAGES, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["2", "2", "2", "2", "1", "False"]
