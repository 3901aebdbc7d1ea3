"""The rows passed between the stages of a plan that sends a document's parts by several tasks."""

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from penstock._columns import column
from penstock._sending import PLACED_SCHEMA

__all__ = ["NOTED_SCHEMA", "NOTED_SPARK_SCHEMA", "PLACED_SCHEMA", "with_note"]

NOTED_SCHEMA: pa.Schema = PLACED_SCHEMA.append(pa.field("ordinal", pa.int64())).append(pa.field("note", pa.string()))
"""The rows of parts with the number of their input row; the result of a group is a separate row with a ``note``."""

NOTED_SPARK_SCHEMA: StructType = from_arrow_schema(NOTED_SCHEMA)


def with_note(batch: pa.RecordBatch, ordinal: int, note: str | None = None) -> pa.RecordBatch:
    """Convert rows of `PLACED_SCHEMA` to `NOTED_SCHEMA`."""
    rows = batch.num_rows
    more = [column([ordinal] * rows, pa.int64()), column([note] * rows, pa.string())]
    return pa.RecordBatch.from_arrays([*batch.columns, *more], schema=NOTED_SCHEMA)
