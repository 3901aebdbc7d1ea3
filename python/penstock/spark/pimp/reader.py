"""The source: a job that is read as rows, or, if it lists other jobs, the rows of all of these."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from penstock._columns import column
from penstock.errors import PimpError, SparkError
from penstock.pimp import Consumer, Job
from penstock.pimp._consumer import Metadata
from penstock.spark._batches import resize
from penstock.spark._options import Options
from penstock.spark.pimp import json_rows
from penstock.spark.pimp.reach import LISTS, read_job

__all__ = ["PimpPartition", "PimpReader"]

_ARROW = "application/vnd.apache.arrow.stream"
_LINES = frozenset({"application/x-ndjson", "application/jsonl"})
_VALUE = "value"


@dataclass(frozen=True)
class PimpPartition(InputPartition):
    """The input of one Spark task: a job."""

    job: Job


@dataclass(frozen=True)
class PimpReader(DataSourceReader):
    """Reads a job, or the jobs that it lists, each in one task; it holds only options."""

    job: Job
    schema: StructType

    @classmethod
    def of(cls, given: dict[str, str], schema: StructType) -> "PimpReader":
        """Create the reader from the options."""
        options = Options(given, "source", "pimp")
        job = read_job(options, writes=False)
        options.finish()
        return cls(job, schema)

    @classmethod
    def schema_of(cls, given: dict[str, str]) -> StructType:
        """Return the columns of a job: those of its Arrow stream, else ``value``."""
        named = cls.of(given, StructType()).job
        try:
            job = _parts(named)[0]
            consumer = job.consumer()
            kind = _essence(consumer.metadata)
            if kind == _ARROW:
                return from_arrow_schema(consumer.arrow_schema())
        except PimpError as error:
            raise SparkError(f"the pimp source cannot read {named.url}: {error}", error.kind) from error
        return StructType([StructField(_VALUE, StringType() if kind in _LINES else BinaryType())])

    def partitions(self) -> list[PimpPartition]:
        """Return one partition for each job."""
        try:
            return [PimpPartition(job) for job in _parts(self.job)]
        except PimpError as error:
            raise SparkError(f"{self.job!r} cannot be read: {error}", error.kind) from error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a job."""
        if not isinstance(partition, PimpPartition):
            raise TypeError(f"not a partition of this source: {partition!r}")
        consumer = partition.job.consumer()
        kind, arrow = _essence(consumer.metadata), to_arrow_schema(self.schema, timezone="UTC")
        if kind == _ARROW:
            # The cast is needed because one time zone may have several names.
            return resize(batch.select(arrow.names).cast(arrow) for batch in consumer.batches())
        if kind not in _LINES:
            return iter([_one(consumer.read(), self.schema)])
        return resize(_lines(consumer, self.schema))


def _essence(metadata: Metadata) -> str:
    return metadata.content_type.partition(";")[0].strip().lower()


def _parts(job: Job) -> list[Job]:
    """Return the jobs that a job lists; only the job itself if it is not a list."""
    consumer = job.consumer()
    if consumer.metadata.meta != LISTS:
        return [job]
    parts = []
    for line in consumer.read().splitlines():
        part = job.with_key(job.key)
        try:
            part._url = str(json.loads(line)["url"])
        except (ValueError, LookupError, TypeError) as error:
            raise SparkError(f"{job!r} has an invalid list of jobs: {error}", "malformed") from error
        # The list is untrusted input, and the keys must not be sent to another buffer.
        if part.url.removesuffix(part.id) != job.url.removesuffix(job.id):
            raise SparkError(f"{job!r} lists a job of another buffer")
        parts.append(part)
    if not parts:
        raise SparkError(f"{job!r} lists no jobs")
    return parts


def _one(payload: bytes, schema: StructType) -> pa.RecordBatch:
    arrow = to_arrow_schema(schema, timezone="UTC")
    value = payload.decode() if arrow.field(0).type in {pa.string(), pa.large_string()} else payload
    return pa.RecordBatch.from_arrays([column([value], arrow.field(0).type)], schema=arrow)


def _lines(consumer: Consumer, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield rows as soon as whole lines have arrived."""
    whole = schema.fieldNames() == [_VALUE] and schema[_VALUE].dataType == StringType()
    arrow = to_arrow_schema(schema, timezone="UTC")
    rest = b""
    for data in consumer:
        lines, found, rest = (rest + data).rpartition(b"\n")
        if found:
            yield from _parsed(lines, arrow, whole)
    yield from _parsed(rest, arrow, whole)


def _parsed(lines: bytes, arrow: pa.Schema, whole: bool) -> Iterator[pa.RecordBatch]:
    if not lines.strip():
        return
    if whole:
        # Only a newline ends a line; splitlines() would also split at other characters.
        values = [line for line in lines.decode().split("\n") if line]
        yield pa.RecordBatch.from_arrays([column(values, arrow.field(0).type)], schema=arrow)
        return
    yield from json_rows.rows(lines, arrow)
