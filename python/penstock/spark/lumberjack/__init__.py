"""The data source "lumberjack": events from Filebeat and its relatives as rows, and rows shipped as events.

As a stream it runs the receiver itself, or follows the spool of one beside it; as a batch it reads a spool.

Example:
    >>> from penstock.spark import local_session
    >>> spark = local_session()  # doctest: +SKIP
    >>> logs = spark.readStream.format("lumberjack").option("listen", "127.0.0.1:5044")  # doctest: +SKIP
    >>> events = logs.option("spool", "/data/spool").load()  # doctest: +SKIP
    >>> query = events.writeStream.format("parquet").option("checkpointLocation", "/data/checkpoint")  # doctest: +SKIP
    >>> query.start("/data/logs")  # doctest: +SKIP
"""

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from penstock.spark.lumberjack.source import EVENT_COLUMNS

if TYPE_CHECKING:
    from penstock.spark.lumberjack.reader import LumberjackReader
    from penstock.spark.lumberjack.stream_reader import LumberjackStreamReader
    from penstock.spark.lumberjack.writer import LumberjackStreamWriter, LumberjackWriter

__all__ = ["LumberjackDataSource"]


@dataclass(frozen=True)
class LumberjackDataSource(DataSource):
    """``format("lumberjack")``, once ``penstock.spark.register(spark)`` was called.

    Options of a source that reads a spool, batch and stream:
        path: The spool's folder or URI, or ``HOST:PORT`` of the receiver that serves it; or what ``load`` is given.
        fingerprint, ca, system_ca: One of them, to trust that receiver.
        read_key_file: A file of the driver with the receiver's read key; by default ``PENSTOCK_KEY`` has it.
        storage.NAME: Options of an object store.
        minPartitions, targetPartitionBytes: How many tasks, and how much for each: by default as many as the driver has
            cores, and 64 MiB.

    Options of a stream that runs the receiver:
        listen: ``HOST:PORT`` for writers.
        spool: The folder, or the URI, that keeps events.
        advertise: ``HOST:PORT`` at which executors reach the driver's spool; by default the host of ``listen``.
        ack: ``spool``: events are acknowledged when they are on disk. ``commit``: when the query has committed them.
        dedup: ``false`` to keep what is sent again after a broken connection.
        skipDamaged: ``true`` to leave out events that were lost to damage on disk; by default the query fails.
        spoolBytes: Bytes that the spool keeps; then writers wait. By default 10 GiB.
        tls, cert, key, client_ca: As `penstock.lumberjack.Receiver` has them.
        metrics: ``HOST:PORT`` for Prometheus.

    Options of every stream:
        maxRowsPerTrigger, maxBytesPerTrigger: What a micro-batch has at most.
        reader: A name under which the spool remembers what was committed. Segments that every named reader is done with
            are removed. By default a source that listens is ``spark``, any other has none.
        checkpointLocation: The query's, so that what was committed last is known at the end and at the next start.

    Options of the sink, beside the trust as above:
        address: ``HOST:PORT`` of a receiver, or several, with commas; or what ``save`` and ``start`` are given.
        balance: ``true`` to use all of them.
        cert, key: Our own certificate and its key.
        plain: ``true`` to send in plain text to another machine.
        frames: ``json``, or ``map`` for pairs of strings.
        protocol, window, compress: 2, 2048 events and level 3 by default.
        retry: Seconds to try before a task fails: 60.

    Columns of a source are those of `EVENT_COLUMNS`, or, by ``schema(...)``, the fields of events; then ``_received``,
    ``_peer``, ``_identity``, ``_sequence``, ``_raw``, ``_tags`` and ``_rescue`` are no fields. A sink ships a column
    ``event`` alone as it is, JSON, and else each row as an object of its columns.
    """

    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "lumberjack"

    def schema(self) -> StructType:
        """The columns of events as they came."""
        return EVENT_COLUMNS

    def reader(self, schema: StructType) -> "LumberjackReader":
        """Read a spool."""
        from penstock.spark.lumberjack.reader import LumberjackReader

        return LumberjackReader.of(dict(self.options), schema)

    def streamReader(self, schema: StructType) -> "LumberjackStreamReader":  # noqa: N802 - Spark's name
        """Follow a spool."""
        from penstock.spark.lumberjack.stream_reader import LumberjackStreamReader

        return LumberjackStreamReader.of(dict(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> "LumberjackWriter":
        """Check options and columns; nothing is connected yet."""
        from penstock.spark.lumberjack.writer import LumberjackWriter

        return LumberjackWriter.of(dict(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "LumberjackStreamWriter":  # noqa: N802 - Spark's
        """Check options and columns; nothing is connected yet."""
        from penstock.spark.lumberjack.writer import LumberjackStreamWriter

        return LumberjackStreamWriter.of(dict(self.options), schema, overwrite=overwrite)
