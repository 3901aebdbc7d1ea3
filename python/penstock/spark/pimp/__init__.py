"""The data source "pimp": rows for a browser or another client that can only poll, and jobs that are read as rows.

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
    """The data source of ``format("pimp")``, after ``penstock.spark.register(spark)``.

    Options of both sides:
        address: The job's URL, ``BUFFER/pimp/{jobId}``; the same as the argument of ``load``, ``save`` and ``start``.
        key: The writeKey; preferably not as an option but in ``key_file``, a file on the driver, or in PENSTOCK_KEY in
            the driver's environment.
        read_key: The readKey, if the job has one.
        fingerprint, ca, system_ca: How to trust the buffer; at most one of them, by default what the system trusts.
        cert, cert_key: The client's own certificate (PEM) and the file with its private key.
        allowed_hosts: The hosts that may be contacted, separated by commas; set it if the URL is untrusted input.

    Options of the sink:
        jobs: ``query`` (default): all rows are written into the job, in the order of the partitions, once all are
            computed. ``partition``: each partition is written, while it is computed, into its own job, and a line of
            JSON for each of these is written into the job.
        rows: ``jsonl`` (default): a line of JSON for each row. ``ipc``: an Arrow stream; a streaming query accepts it
            only with ``jobs=partition``.
        chunkBytes: Bytes in a chunk of a partition's own job, 65,536 by default; readers see a chunk when it is full.
        chunksPerBatch: How many chunks of the job each micro-batch occupies, full or not; 8 by default, which hold
            2 MiB. A job has 4,095 chunks for rows.

    A source returns the columns of an Arrow stream; for lines, ``value`` as a string, or the columns of the given
    schema; for any other content, ``value``, with the whole payload in one row. If a job lists other jobs, these are
    read, each by one task.
    """

    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        """Return the name to pass to ``format``."""
        return "pimp"

    def schema(self) -> StructType:
        """Ask the buffer for the job's columns."""
        from penstock.spark.pimp.reader import PimpReader

        return PimpReader.schema_of(dict(self.options))

    def reader(self, schema: StructType) -> "PimpReader":
        """Check the options and return a reader; the job is read on the executors."""
        from penstock.spark.pimp.reader import PimpReader

        return PimpReader.of(dict(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> "PimpWriter":
        """Check the options, create the job if needed and write its metadata."""
        from penstock.spark.pimp.writer import PimpWriter

        return PimpWriter.of(dict(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "PimpStreamWriter":  # noqa: N802 - Spark's
        """Check the options, create the job if needed and write its metadata."""
        from penstock.spark.pimp.stream_writer import PimpStreamWriter

        return PimpStreamWriter.of(dict(self.options), schema, overwrite=overwrite)
