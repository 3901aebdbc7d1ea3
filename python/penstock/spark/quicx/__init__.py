"""The data source "quicx": rows that are submitted as tasks, and tasks that are received as rows.

Example:
    >>> from penstock.spark import local_session
    >>> spark = local_session()  # doctest: +SKIP
    >>> pages = spark.read.parquet("pages").selectExpr("'ocr' AS type", "image AS payload")  # doctest: +SKIP
    >>> pages.write.format("quicx").mode("append").save("127.0.0.1:16381")  # doctest: +SKIP
    >>> tasks = spark.readStream.format("quicx").option("types", "ocr").load("127.0.0.1:16381")  # doctest: +SKIP
    >>> query = tasks.writeStream.format("parquet").option("checkpointLocation", "checkpoint")  # doctest: +SKIP
    >>> query.start("done")  # doctest: +SKIP
"""

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from penstock.spark.quicx.source import TASK_COLUMNS

if TYPE_CHECKING:
    from penstock.spark.quicx.stream_reader import QuicxStreamReader
    from penstock.spark.quicx.writer import QuicxStreamWriter, QuicxWriter

__all__ = ["QuicxDataSource"]


@dataclass(frozen=True)
class QuicxDataSource(DataSource):
    """The data source of ``format("quicx")``, after ``penstock.spark.register(spark)``.

    Options of both sides:
        address: ``HOST:PORT`` of the daemon; the same as the argument of ``load``, ``save`` and ``start``.
        socket: The path of the daemon's Unix socket instead, if driver and executors run on one machine.
        fingerprint, ca, system_ca: How to trust a daemon with TLS; at most one of them.
        cert, key: The client's own certificate (PEM) and the file with its private key.
        server_name: The name for which the daemon's certificate must be valid; by default the host.
        plain: ``true`` to use plain text with another machine.
        spool: A folder that all machines share, or a URI, that holds larger payloads, as for `penstock.quicx.Producer`.
        storage.NAME: Options of an object store.
        retry: For how many seconds to retry if the daemon is unreachable or its queue is full; 60 by default.

    Options of the sink:
        type: The type of all tasks; by default the column ``type``.
        spoolAbove: The size, in bytes, above which a payload is written to the spool; 3072 by default.

    Options of the stream:
        types: The types of tasks to accept, separated by commas; by default all.
        maxRowsPerTrigger: How many tasks the driver holds at once, and therefore the most in a micro-batch; 1000 by
            default, 65,535 at most.
        maxBytesPerTrigger: The most bytes of payload in a micro-batch; by default there is no limit.
        minPartitions: Among how many Spark tasks they are divided; by default the number of the driver's cores.
        checkpointLocation: The checkpoint of the query, so that the tasks of its last commit are also reported as DONE
            when it is stopped.

    A sink accepts a column ``payload``, binary or string, optionally with ``type`` and ``key``. Rows without it become
    a JSON payload with their columns as fields, except a column ``type`` that names the task's type. A source returns
    `TASK_COLUMNS`.
    """

    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        """Return the name to pass to ``format``."""
        return "quicx"

    def schema(self) -> StructType:
        """Return the columns of tasks."""
        return TASK_COLUMNS

    def streamReader(self, schema: StructType) -> "QuicxStreamReader":  # noqa: N802 - Spark's name
        """Check options and columns and return a reader that acts as a worker; no connection is opened yet."""
        from penstock.spark.quicx.stream_reader import QuicxStreamReader

        return QuicxStreamReader.of(dict(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> "QuicxWriter":
        """Check options and columns; no connection is opened yet."""
        from penstock.spark.quicx.writer import QuicxWriter

        return QuicxWriter.of(dict(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "QuicxStreamWriter":  # noqa: N802 - Spark's
        """Check options and columns; no connection is opened yet."""
        from penstock.spark.quicx.writer import QuicxStreamWriter

        return QuicxStreamWriter.of(dict(self.options), schema, overwrite=overwrite)
