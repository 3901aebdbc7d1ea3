"""The writer of a stream: ``df.writeStream.format("pipestream")``."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.errors import SparkError
from penstock.spark._micro_batch import micro_batch
from penstock.spark._options import Options
from penstock.spark.pipestream.owner import of_stream, read_secret
from penstock.spark.pipestream.rows import RowSink, Written

__all__ = ["PipeStreamStreamWriter"]


@dataclass(frozen=True)
class PipeStreamStreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of each micro-batch, all of them or none, and once even if the micro-batch runs again.

    Each task and the driver have their own writer. They share the transaction, which consists of the query's ID and the
    micro-batch's number.
    """

    sink: RowSink

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> "PipeStreamStreamWriter":
        """Create the writer from the options; invalid ones raise an error here, before any task runs."""
        read = Options(options, "sink")
        sink = RowSink.read(read, schema, overwrite=overwrite)
        if read.text("transaction") is not None:
            raise read.error("transaction", "is only for batch writes: each micro-batch has its own transaction")
        secret = read_secret(read)
        read.finish()
        if not sink.atomic:
            return cls(sink)
        return cls(replace(sink, owner=of_stream(secret, read.given.get("checkpointlocation"))))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of a partition. Spark calls this once for each attempt of a task."""
        return self.sink.send(iterator, micro_batch("pipestream") if self.sink.atomic else None)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's
        """Make the rows of a micro-batch readable; a micro-batch that was already committed is unchanged."""
        written = cast("list[Written | None]", messages)
        self.sink.commit(_common(written), written, again=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's
        """Discard the rows that the tasks have sent; the micro-batch may run again."""
        written = cast("list[Written | None]", messages)
        self.sink.abort(_common(written), written, whole=False)


def _common(messages: list[Written | None]) -> str | None:
    keys = {message.transaction for message in messages if message is not None}
    if len(keys) > 1:
        raise SparkError(f"tasks of one micro-batch name several transactions: {keys}")
    return next(iter(keys), None)
