"""The rows between the stages of a plan that works on parts apart."""

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from penstock._columns import column
from penstock._sending import PLACED_SCHEMA

__all__ = ["NOTED_SCHEMA", "NOTED_SPARK_SCHEMA", "PLACED_SCHEMA", "with_note"]

NOTED_SCHEMA: pa.Schema = PLACED_SCHEMA.append(pa.field("ordinal", pa.int64())).append(pa.field("note", pa.string()))
"""The rows of parts, which row of the input they are of, and the account of a group in a row of its own."""

NOTED_SPARK_SCHEMA: StructType = from_arrow_schema(NOTED_SCHEMA)


def with_note(batch: pa.RecordBatch, ordinal: int, note: str | None = None) -> pa.RecordBatch:
    """Make rows of `NOTED_SCHEMA` out of those of `PLACED_SCHEMA`."""
    rows = batch.num_rows
    more = [column([ordinal] * rows, pa.int64()), column([note] * rows, pa.string())]
    return pa.RecordBatch.from_arrays([*batch.columns, *more], schema=NOTED_SCHEMA)
