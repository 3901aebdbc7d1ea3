"""The data source "lumberjack": events from Filebeat and compatible senders as rows, and rows sent as events.

As a stream it runs the receiver itself or follows the spool of another one; as a batch it reads a spool.

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
    """The data source of ``format("lumberjack")``, after ``penstock.spark.register(spark)``.

    Options of every source, batch and stream:
        minPartitions, targetPartitionBytes: The number of tasks to aim for, by default the number of the driver's
            cores, and how many bytes each should read, by default 64 MiB.
        skipDamaged: ``true`` to omit events that were lost to damage on disk; by default the query fails.

    Options of a source that reads a spool, batch and stream:
        path: The spool's folder or URI, or ``HOST:PORT`` of the receiver that serves it; the same as the argument of
            ``load``.
        fingerprint, ca, system_ca: How to trust that receiver; exactly one of them.
        read_key_file: A file on the driver with the receiver's read key; by default ``PENSTOCK_KEY`` is read.
        storage.NAME: Options of an object store.

    Options of a stream that runs the receiver:
        listen: ``HOST:PORT`` on which the receiver listens for senders.
        spool: The folder, or the URI, in which events are stored; a URI accepts ``storage.NAME`` as above.
        advertise: ``HOST:PORT`` at which executors reach the driver's spool; by default the host of ``listen``.
        ack: ``spool`` (default): events are acknowledged when they are on disk. ``commit``: when the query has
            committed them.
        dedup: ``false`` to keep events that are sent again after a broken connection; by default they are dropped.
        spoolBytes: How many bytes the spool may hold before senders must wait; by default 10 GiB.
        tls, cert, key, client_ca: As for `penstock.lumberjack.Receiver`.
        metrics: ``HOST:PORT`` on which metrics are served for Prometheus.

    Options of every stream:
        maxRowsPerTrigger, maxBytesPerTrigger: The most rows and bytes that a micro-batch reads; by default all.
        reader: A name under which the spool records what was committed. Segments that every named reader has committed
            are removed. By default it is ``spark`` for a source that listens, and any other source has no name.
        checkpointLocation: The checkpoint of the query, from which the source learns the last commit when it stops and
            when it starts again.

    Options of the sink, in addition to ``fingerprint``, ``ca`` and ``system_ca``:
        address: ``HOST:PORT`` of a receiver, or several, separated by commas; the same as the argument of ``save`` and
            ``start``.
        balance: ``true`` to use all of them.
        cert, key: The sink's own certificate and its private key.
        plain: ``true`` to send plain text to another machine.
        frames: ``json`` (default), or ``map`` for pairs of strings.
        protocol, window, compress: The protocol version, 2 by default; the window, 2048 events; the level, 3.
        retry: For how many seconds a task retries before it fails; 60 by default.

    The columns of a source are `EVENT_COLUMNS`, some of them, or, with ``schema(...)``, fields of the events; then the
    names ``_received``, ``_peer``, ``_identity``, ``_sequence``, ``_raw``, ``_tags`` and ``_rescue`` do not refer to
    fields. If ``event`` is the only column of a sink, it is sent as it is and must be JSON; otherwise each row is sent
    as an object with its columns as fields.
    """

    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        """Return the name to pass to ``format``."""
        return "lumberjack"

    def schema(self) -> StructType:
        """Return the columns of events as they were received."""
        return EVENT_COLUMNS

    def reader(self, schema: StructType) -> "LumberjackReader":
        """Check options and columns and return the reader of a spool."""
        from penstock.spark.lumberjack.reader import LumberjackReader

        return LumberjackReader.of(dict(self.options), schema)

    def streamReader(self, schema: StructType) -> "LumberjackStreamReader":  # noqa: N802 - Spark's name
        """Check options and columns and return a reader that follows a spool."""
        from penstock.spark.lumberjack.stream_reader import LumberjackStreamReader

        return LumberjackStreamReader.of(dict(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> "LumberjackWriter":
        """Check options and columns; no connection is opened yet."""
        from penstock.spark.lumberjack.writer import LumberjackWriter

        return LumberjackWriter.of(dict(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "LumberjackStreamWriter":  # noqa: N802 - Spark's
        """Check options and columns; no connection is opened yet."""
        from penstock.spark.lumberjack.writer import LumberjackStreamWriter

        return LumberjackStreamWriter.of(dict(self.options), schema, overwrite=overwrite)
