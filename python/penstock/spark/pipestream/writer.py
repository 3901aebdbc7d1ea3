"""The batch writer: ``df.write.format("pipestream")``."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.errors import SparkError
from penstock.spark._options import Options
from penstock.spark.pipestream.owner import of_job, read_secret
from penstock.spark.pipestream.rows import RowSink, Written

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PipeStreamWriter"]

_MOST_KEY = 256


@dataclass(frozen=True)
class PipeStreamWriter(DataSourceArrowWriter):
    """Writes the rows of a job, all of them or none.

    Spark creates one for each job on the driver, sends copies of it to the tasks, and finally calls `commit` or `abort`
    on the driver.
    """

    sink: RowSink
    transaction: str | None
    """The transaction of all sessions of the job; ``None``: each is readable as soon as its task has ended."""
    own_key: bool = True
    """Whether no other job can have the same transaction."""

    @classmethod
    def of(cls, options: "Mapping[str, str]", schema: StructType, *, overwrite: bool) -> "PipeStreamWriter":
        """Create the writer from the options; invalid ones raise an error here, before any task runs."""
        read = Options(options, "sink")
        sink = RowSink.read(read, schema, overwrite=overwrite)
        key, secret = read.text("transaction"), read_secret(read)
        read.finish()
        if key is not None and not sink.atomic:
            raise SparkError("the options transaction and atomic=false of the pipestream sink are mutually exclusive")
        if key is not None and not 1 <= len(key.encode()) <= _MOST_KEY:
            raise read.error("transaction", f"must have 1 to {_MOST_KEY} bytes")
        if not sink.atomic:
            return cls(sink, None)
        owner = of_job(secret, named=key is not None)
        return cls(replace(sink, owner=owner), key or f"spark/{uuid4().hex}", own_key=key is None)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of a partition. Spark calls this once for each attempt of a task."""
        return self.sink.send(iterator, self.transaction)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the rows of all partitions readable together."""
        self.sink.commit(self.transaction, cast("list[Written | None]", messages), named=not self.own_key)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Discard the rows that the tasks have sent."""
        self.sink.abort(self.transaction, cast("list[Written | None]", messages), whole=self.own_key)
