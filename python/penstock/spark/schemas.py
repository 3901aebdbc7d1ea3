"""The columns of parts and of composites, for Arrow and for Spark."""

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from penstock.documents import PART_SCHEMA as PART_ARROW_SCHEMA

__all__ = ["COMPOSITE_ARROW_SCHEMA", "COMPOSITE_SCHEMA", "PART_ARROW_SCHEMA", "PART_SCHEMA"]

PART_SCHEMA: StructType = from_arrow_schema(PART_ARROW_SCHEMA)
"""The rows that ``dehydrate`` returns: one for each part, starting with the document itself (empty path, depth 0)."""

NODE = pa.struct(
    [
        pa.field("path", pa.list_(pa.string())),
        pa.field("type", pa.string()),
        pa.field("bytes", pa.int64()),
        pa.field("sha256", pa.string()),
        pa.field("status", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("depth", pa.int32()),
        pa.field("text", pa.string()),
    ]
)

COMPOSITE_ARROW_SCHEMA = pa.schema(
    [
        pa.field("document", pa.string()),
        pa.field("key", pa.string()),
        pa.field("status", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("sha256", pa.string()),
        pa.field("bytes", pa.int64()),
        pa.field("parts", pa.int32()),
        pa.field("failed", pa.int32()),
        pa.field("text", pa.string()),
        pa.field("text_cut", pa.bool_()),
        pa.field("tree", pa.list_(NODE)),
        pa.field("content_root", pa.string()),
    ]
)

COMPOSITE_SCHEMA: StructType = from_arrow_schema(COMPOSITE_ARROW_SCHEMA)
"""The rows that ``rehydrate`` returns: one for each document."""
