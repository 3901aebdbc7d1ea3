"""The sink of a stream: each micro-batch has its place in the job, so it is written once even if it runs again.

Every micro-batch occupies the same number of chunks, full or not. Chunk 0 is the metadata, and the chunks of
micro-batch N start at 1 + N * chunksPerBatch. The buffer stores each index once, so a micro-batch that is committed
again changes nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.errors import PimpError, SparkError
from penstock.pimp._job import key_of
from penstock.spark._micro_batch import micro_batch
from penstock.spark._options import Options
from penstock.spark.pimp.reach import Target
from penstock.spark.pimp.writer import Written, begin, index_of, partition_id, rows_of, write_partition, written

__all__ = ["PimpStreamWriter"]

_VALUE = 256 << 10


@dataclass(frozen=True)
class PimpStreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of each micro-batch into the job; the job ends with `penstock.pimp.Job.finish`."""

    target: Target

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> "PimpStreamWriter":
        """Create the writer and, if needed, the job; invalid options raise an error before any task runs."""
        target = Target.read(Options(options, "sink", "pimp"), schema, overwrite=overwrite)
        if target.rows == "ipc" and target.jobs == "query":
            raise SparkError("the pimp sink of a stream requires rows=jsonl or jobs=partition")
        begin(target)
        return cls(target)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Collect the rows of a partition of a micro-batch, or write them into the partition's job."""
        if self.target.jobs == "query":
            return rows_of(self.target, iterator)
        name = f"{micro_batch('pimp')}/{partition_id()}"
        return write_partition(self.target, name, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Append the rows of the micro-batch, or the list of its partitions' jobs, to the job."""
        parts, job = written(messages), self.target.job
        listed = self.target.jobs == "partition"
        text = index_of(parts) if listed else b"".join(each.payload for each in parts).decode()
        values = _cut(text)
        room = self.target.chunks_per_batch
        if len(values) > room:
            raise SparkError(
                f"micro-batch {batchId} has {len(values)} chunks, but chunksPerBatch is {room}: use smaller "
                "micro-batches, or start a new job with a larger number"
            )
        values += [""] * (room - len(values))
        first = 1 + batchId * room
        chunks = [(first + at, value) for at, value in enumerate(values)]
        if job._native.write_chunks(key_of(job), chunks, False, None, None):
            job.finish("cancelled by the consumer")
            raise PimpError("the consumer has cancelled the job", "io", "CANCELLED")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's
        """Finish the job if it is cancelled; otherwise do nothing, because the micro-batch may run again."""
        job = self.target.job
        if job.status().cancelled:
            job.finish("cancelled by the consumer")


def _cut(text: str) -> list[str]:
    """Split a text into chunks without splitting a code point."""
    data, values, at = text.encode(), [], 0
    while at < len(data):
        end = min(at + _VALUE, len(data))
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end -= 1
        values.append(data[at:end].decode())
        at = end
    return values
