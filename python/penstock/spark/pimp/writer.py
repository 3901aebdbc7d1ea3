"""The sink of a query: rows that become a job, or a job for each partition.

A task may be run again, or twice at once. Into the job of a query the driver writes, when all partitions are there. The
job of a partition has an ID that its place says, chunks whose bounds its rows alone say, and is taken over by each
attempt: the buffer takes each chunk once, from whom it came first, and refuses an attempt that is no longer the
last. Where an attempt computes other rows than the one before, its sender finds them there and fails the job.
"""

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.errors import PimpError, SparkError
from penstock.pimp import Job
from penstock.pimp._job import key_of
from penstock.pimp._pieces import TYPES, json_lines
from penstock.spark._options import Options
from penstock.spark.pimp.reach import LISTS, Target, own_job, take_over_job
from penstock.spark.pimp.watch import Watch

__all__ = [
    "PimpWriter",
    "Written",
    "begin",
    "fail",
    "index_of",
    "partition_id",
    "rows_of",
    "write_partition",
    "written",
]

_MOST = 50 << 20
_LINES = "application/x-ndjson"


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task tells the driver: its rows, or the job that has them."""

    partition: int
    rows: int
    size: int
    """Bytes of the rows."""
    payload: bytes = b""
    """The rows themselves, where the driver writes them."""
    url: str | None = None
    """The job of the partition, where it has one."""


def partition_id() -> int:
    """Give the place of this task among those of its job."""
    context = TaskContext.get()
    return context.partitionId() if context else 0


def rows_of(target: Target, batches: Iterable[pa.RecordBatch]) -> Written:
    """Keep the rows of a partition for the driver; no more of them than a job has."""
    out, rows, arrow = io.BytesIO(), 0, to_arrow_schema(target.columns, timezone="UTC")
    # What has no rows has columns.
    writer = pa.ipc.new_stream(out, arrow) if target.rows == "ipc" else None
    with Watch(target.job) as watch:
        for batch in watch.each(batches):
            rows += batch.num_rows
            if writer is not None:
                writer.write_batch(batch.cast(arrow))
            else:
                for lines in json_lines(batch):
                    out.write(lines.encode())
            if out.tell() > _MOST:
                raise SparkError(
                    "the rows of a partition are more than a job may have: write with option jobs=partition"
                )
    if writer is not None:
        writer.close()
    payload = out.getvalue()
    return Written(partition_id(), rows, len(payload), payload)


def write_partition(target: Target, name: str, batches: Iterable[pa.RecordBatch]) -> Written:
    """Write the rows of a partition into a job of its own, as they come."""
    job, rows = take_over_job(own_job(target.job, name), target.job), 0
    arrow = to_arrow_schema(target.columns, timezone="UTC")

    def counted(watch: Watch) -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for batch in watch.each(batches):
            rows += batch.num_rows
            yield batch.cast(arrow)

    sender = job.sender(
        content_type=TYPES[target.rows],
        encoding="identity" if target.rows == "jsonl" else "base64",
        arrow=target.rows,
        chunk_bytes=target.chunk_bytes,
        max_chunks_per_batch=1,
        # What goes when must not depend on the time: an attempt that comes later has the same chunks.
        flush_interval=None,
    )
    with Watch(target.job) as watch:
        # What has no rows has columns.
        sender.send(pa.RecordBatchReader.from_batches(arrow, []))
        sender.send(counted(watch))
        # A task that fails leaves the job as it is, for the next attempt.
        sender.finish()
    return Written(partition_id(), rows, sender.bytes_written, url=job.url)


def index_of(messages: Iterable[Written]) -> str:
    """Give the lines that list jobs."""
    fields = [
        {"partition": each.partition, "url": each.url, "rows": each.rows, "bytes": each.size} for each in messages
    ]
    return "".join(f"{json.dumps(each)}\n" for each in fields)


def written(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    """Give what tasks have told, in the order of the partitions."""
    return sorted((each for each in messages if isinstance(each, Written)), key=lambda each: each.partition)


@dataclass(frozen=True)
class PimpWriter(DataSourceArrowWriter):
    """Writes the rows of a query. Spark makes one on the driver and hands copies of it to the tasks."""

    target: Target

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> "PimpWriter":
        """Make it of the options, and the job if need be; what is wrong with them is an error before any task runs."""
        target = Target.read(Options(options, "sink", "pimp"), schema, overwrite=overwrite)
        begin(target)
        return cls(target)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Take the rows of a partition."""
        if self.target.jobs == "query":
            return rows_of(self.target, iterator)
        return write_partition(self.target, str(partition_id()), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Write the job: the rows, or the list of the partitions' jobs."""
        parts, job = written(messages), self.target.job
        if self.target.jobs == "partition":
            with job.sender(content_type=_LINES, encoding="identity", meta=LISTS) as sender:
                sender.send(index_of(parts))
        elif self.target.rows == "jsonl":
            with job.sender(content_type=_LINES, encoding="identity") as sender:
                sender.send(each.payload for each in parts)
        else:
            with job.sender(content_type=TYPES["ipc"], arrow="ipc") as sender:
                sender.send(pa.RecordBatchReader.from_batches(to_arrow_schema(self.target.columns, timezone="UTC"), []))
                for each in parts:
                    sender.send(pa.ipc.open_stream(each.payload))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - Spark's
        """Tell readers that there will be nothing."""
        fail(self.target.job, "the query of Spark has failed")


def begin(target: Target) -> None:
    """Make a job if need be, and write its chunk 0: readers are told at once what it will be (section 8).

    Raises:
        SparkError: The buffer cannot be reached, or has refused it.
    """
    binary = target.rows == "ipc" and target.jobs == "query"
    fields: dict[str, object] = {
        "contentType": TYPES["ipc" if binary else "jsonl"],
        "contentEncoding": "base64" if binary else "identity",
    }
    if target.jobs == "partition":
        fields["meta"] = LISTS
    # Of a copy, which is closed again: this one goes to the tasks.
    job = target.job.with_key(target.job.key)
    try:
        job.ensure()
        # Where it is there already nothing changes; where that is another one, the sender finds it.
        job._native.write_chunks(key_of(job), [(0, json.dumps(fields))], False, None, None)
    except PimpError as error:
        raise SparkError(f"{job!r} cannot be made: {error}", "io") from error


def fail(job: Job, why: str) -> None:
    """Fail a job, unless it has ended."""
    try:
        job.sender(content_type=_LINES).fail(why, timeout=10.0)
    except PimpError:
        # The reason why the query failed is the one that counts.
        return
