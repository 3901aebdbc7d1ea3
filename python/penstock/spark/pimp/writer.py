"""The sink of a query: rows that become a job, or a job for each partition.

A task may run again, or twice at once. The job of a query is written by the driver, once all partitions are computed.
The job of a partition has an ID derived from its position and chunks whose bounds depend only on its rows, and each
attempt takes it over: the buffer stores each chunk once, from the first attempt that sends it, and rejects every
attempt but the latest. If an attempt computes other rows than an earlier one, its sender notices the difference and
fails the job.
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
    """The report of a task to the driver: its rows, or the job that contains them."""

    partition: int
    rows: int
    size: int
    """The size of the rows in bytes."""
    payload: bytes = b""
    """The rows themselves, if the driver writes them."""
    url: str | None = None
    """The URL of the partition's job, if it has one."""


def partition_id() -> int:
    """Return the number of this task's partition."""
    context = TaskContext.get()
    return context.partitionId() if context else 0


def rows_of(target: Target, batches: Iterable[pa.RecordBatch]) -> Written:
    """Collect the rows of a partition for the driver, at most 50 MiB."""
    out, rows, arrow = io.BytesIO(), 0, to_arrow_schema(target.columns, timezone="UTC")
    # The schema is written even if there are no rows.
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
                raise SparkError("the rows of a partition exceed the limit of a job: set the option jobs=partition")
    if writer is not None:
        writer.close()
    payload = out.getvalue()
    return Written(partition_id(), rows, len(payload), payload)


def write_partition(target: Target, name: str, batches: Iterable[pa.RecordBatch]) -> Written:
    """Write the rows of a partition into its own job while they are computed."""
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
        # Chunks must not depend on timing, so that a later attempt writes the same ones.
        flush_interval=None,
    )
    with Watch(target.job) as watch:
        # The schema is sent even if there are no rows.
        sender.send(pa.RecordBatchReader.from_batches(arrow, []))
        sender.send(counted(watch))
        # A task that fails does not finish the job: the next attempt continues it.
        sender.finish()
    return Written(partition_id(), rows, sender.bytes_written, url=job.url)


def index_of(messages: Iterable[Written]) -> str:
    """Return the lines of JSON that list the partitions' jobs."""
    fields = [
        {"partition": each.partition, "url": each.url, "rows": each.rows, "bytes": each.size} for each in messages
    ]
    return "".join(f"{json.dumps(each)}\n" for each in fields)


def written(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    """Return the reports of the tasks in the order of the partitions."""
    return sorted((each for each in messages if isinstance(each, Written)), key=lambda each: each.partition)


@dataclass(frozen=True)
class PimpWriter(DataSourceArrowWriter):
    """Writes the rows of a query. Spark creates one on the driver and sends copies of it to the tasks."""

    target: Target

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> "PimpWriter":
        """Create the writer and, if needed, the job; invalid options raise an error before any task runs."""
        target = Target.read(Options(options, "sink", "pimp"), schema, overwrite=overwrite)
        begin(target)
        return cls(target)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Collect the rows of a partition, or write them into the partition's job."""
        if self.target.jobs == "query":
            return rows_of(self.target, iterator)
        return write_partition(self.target, str(partition_id()), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Write the rows, or the list of the partitions' jobs, into the job."""
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
        """Fail the job, so that readers learn that no rows will follow."""
        fail(self.target.job, "the Spark query failed")


def begin(target: Target) -> None:
    """Create the job if needed and write its chunk 0, so that readers know its content type (PIMP, section 8).

    Raises:
        SparkError: The buffer cannot be reached, or rejects the job.
    """
    binary = target.rows == "ipc" and target.jobs == "query"
    fields: dict[str, object] = {
        "contentType": TYPES["ipc" if binary else "jsonl"],
        "contentEncoding": "base64" if binary else "identity",
    }
    if target.jobs == "partition":
        fields["meta"] = LISTS
    # A copy makes the connection, because target.job itself is pickled for the tasks.
    job = target.job.with_key(target.job.key)
    try:
        job.ensure()
        # An existing chunk 0 stays as it is; if its content differs, the sender notices later.
        job._native.write_chunks(key_of(job), [(0, json.dumps(fields))], False, None, None)
    except PimpError as error:
        raise SparkError(f"{job!r} cannot be created: {error}", error.kind) from error


def fail(job: Job, why: str) -> None:
    """Fail a job unless it has ended; ignore errors."""
    try:
        job.sender(content_type=_LINES).fail(why, timeout=10.0)
    except PimpError:
        # This error must not hide the reason why the query failed.
        return
