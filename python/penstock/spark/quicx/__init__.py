"""The data source "quicx": rows that are submitted as tasks, and tasks that are taken as rows.

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
    """``format("quicx")``, once ``penstock.spark.register(spark)`` was called.

    Options of both sides:
        address: ``HOST:PORT`` of the daemon; or what ``load``, ``save`` and ``start`` are given.
        socket: The path of its Unix socket instead, where driver and executors are one machine.
        fingerprint, ca, system_ca: One of them, to trust a daemon with TLS.
        cert, key: Our own certificate (PEM) and the file with its key.
        server_name: The name that the daemon's certificate must be for; by default the host.
        plain: ``true`` to speak plain text to another machine.
        spool: A folder that all machines have, or a URI: larger payloads lie there, as with `penstock.quicx.Producer`.
        storage.NAME: Options of an object store.
        retry: Seconds to try when the daemon is gone, or full: 60.

    Options of the sink:
        type: The type of all tasks. By default the column ``type`` says it.
        spoolAbove: Bytes of a payload that is put into the spool: 3072.

    Options of the stream:
        types: The types to take, with commas. By default all.
        maxRowsPerTrigger: Tasks that are held, and so what a micro-batch has at most: 1000, up to 65,535.
        maxBytesPerTrigger: Bytes of payload that a micro-batch has at most.
        minPartitions: How many tasks of Spark they are divided among: by default as many as the driver has cores.
        checkpointLocation: The query's, so that what was committed last is DONE too when the query is stopped.

    A sink takes a column ``payload``, binary or string, perhaps with ``type`` and ``key``; any other row becomes a
    payload of JSON, with its columns as fields. A source gives `TASK_COLUMNS`.
    """

    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "quicx"

    def schema(self) -> StructType:
        """The columns of tasks."""
        return TASK_COLUMNS

    def streamReader(self, schema: StructType) -> "QuicxStreamReader":  # noqa: N802 - Spark's name
        """Be a worker."""
        from penstock.spark.quicx.stream_reader import QuicxStreamReader

        return QuicxStreamReader.of(dict(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> "QuicxWriter":
        """Check options and columns; nothing is connected yet."""
        from penstock.spark.quicx.writer import QuicxWriter

        return QuicxWriter.of(dict(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "QuicxStreamWriter":  # noqa: N802 - Spark's
        """Check options and columns; nothing is connected yet."""
        from penstock.spark.quicx.writer import QuicxStreamWriter

        return QuicxStreamWriter.of(dict(self.options), schema, overwrite=overwrite)
