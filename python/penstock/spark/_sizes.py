"""Finds the sizes of documents if the rows do not include them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from penstock._columns import column
from penstock.spark._divide import stamp
from penstock.spark._paths import from_column

__all__ = ["Sizes", "size_schema"]


def size_schema(carried: pa.Schema) -> pa.Schema:
    """Return the columns: ``path``, the other columns that describe a document, and ``length``."""
    return pa.schema([pa.field("path", pa.string()), *carried, pa.field("length", pa.int64())])


@dataclass(frozen=True)
class Sizes:
    """Reads the size of each file, for ``mapInArrow``; 0 if it cannot be read: `dehydrate` reports the reason later."""

    carried: pa.Schema
    """The columns other than ``path`` that describe a document."""
    storage: Mapping[str, str]

    @property
    def schema(self) -> StructType:
        """The columns of the result."""
        return from_arrow_schema(size_schema(self.carried))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the rows with their sizes."""
        for batch in batches:
            paths = batch.column("path").to_pylist()
            names = [batch.column(name).cast(self.carried.field(name).type) for name in self.carried.names]
            lengths = column([_length(path, self.storage) for path in paths], pa.int64())
            schema = size_schema(self.carried)
            yield pa.RecordBatch.from_arrays([batch.column("path"), *names, lengths], schema=schema)


def _length(path: str | None, storage: Mapping[str, str]) -> int:
    try:
        found = None if path is None else stamp(from_column(path), storage)
    except OSError:
        found = None
    return 0 if found is None else found[0]
