"""The data source "pimp": rows for a browser, or whoever else can only poll, and jobs that are read as rows.

Example:
    >>> from penstock.pimp import Job
    >>> from penstock.spark import local_session
    >>> spark = local_session()  # doctest: +SKIP
    >>> job = Job.create("https://buffer.example")  # doctest: +SKIP
    >>> rows = spark.read.parquet("results")  # doctest: +SKIP
    >>> rows.write.format("pimp").option("key", job.key).mode("append").save(job.url)  # doctest: +SKIP
    >>> spark.read.format("pimp").load(job.url).show()  # doctest: +SKIP
"""

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from penstock.spark.pimp.watch import stop_when_cancelled

if TYPE_CHECKING:
    from penstock.spark.pimp.reader import PimpReader
    from penstock.spark.pimp.stream_writer import PimpStreamWriter
    from penstock.spark.pimp.writer import PimpWriter

__all__ = ["PimpDataSource", "stop_when_cancelled"]


@dataclass(frozen=True)
class PimpDataSource(DataSource):
    """``format("pimp")``, once ``penstock.spark.register(spark)`` was called.

    Options of both sides:
        address: The job's URL, ``BUFFER/pimp/{jobId}``; or what ``load``, ``save`` and ``start`` are given.
        key: The writeKey; better from ``key_file``, a file of the driver, or PENSTOCK_KEY in its environment.
        read_key: The readKey, where the job has one.
        fingerprint, ca, system_ca: One of them, to trust the buffer; by default what the system trusts.
        cert, cert_key: Our own certificate (PEM) and the file with its key.
        allowed_hosts: The hosts that may be asked, with commas; to be given where the URL comes from outside.

    Options of the sink:
        jobs: ``query``: all rows go into the job, in the order of the partitions, when they are there. ``partition``:
            each partition is written as it is computed into a job of its own, and the job gets a line of JSON for each.
        rows: ``jsonl``: each row a line of JSON; or ``ipc``, a stream of Arrow, which is no sink of a stream.
        chunkBytes: Bytes of a chunk of a partition's own job: 65,536; a reader sees them as they fill.
        chunksPerBatch: Chunks that a micro-batch takes of the job, full or not: 8, so 2 MiB; the job has 4,095.

    A source gives the columns of a stream of Arrow; of lines, ``value`` as a string, or the columns of the schema it is
    given; of anything else, ``value``, the payload as one row. A job that lists others is read as these, each a task.
    """

    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "pimp"

    def schema(self) -> StructType:
        """Ask the job what it is."""
        from penstock.spark.pimp.reader import PimpReader

        return PimpReader.schema_of(dict(self.options))

    def reader(self, schema: StructType) -> "PimpReader":
        """Read the options; the job is read on the executors."""
        from penstock.spark.pimp.reader import PimpReader

        return PimpReader.of(dict(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> "PimpWriter":
        """Check the options; nothing is asked yet."""
        from penstock.spark.pimp.writer import PimpWriter

        return PimpWriter.of(dict(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "PimpStreamWriter":  # noqa: N802 - Spark's
        """Check the options; nothing is asked yet."""
        from penstock.spark.pimp.stream_writer import PimpStreamWriter

        return PimpStreamWriter.of(dict(self.options), schema, overwrite=overwrite)
