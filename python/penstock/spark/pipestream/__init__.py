"""The data source "pipestream": rows that become entities of a PipeStream server, and a sink's entities as rows.

What is written is sent, each task's rows in a session of its own. What is read is what a sink has kept of closed
sessions: in its folder, or through the server that keeps it.

Example:
    >>> from penstock.spark import local_session
    >>> spark = local_session()  # doctest: +SKIP
    >>> rows = spark.createDataFrame([(b"bytes", "a.bin")], "content binary, document string")  # doctest: +SKIP
    >>> writer = rows.write.format("pipestream").mode("append")  # doctest: +SKIP
    >>> writer.option("fingerprint", "ab" * 32).save("127.0.0.1:4433")  # doctest: +SKIP
    >>> spark.read.format("pipestream").load("/data/sink").where("status = 'COMPLETE'").count()  # doctest: +SKIP
"""

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from penstock.spark.pipestream.source import ROW_COLUMNS

if TYPE_CHECKING:
    from penstock.spark.pipestream.reader import PipeStreamReader
    from penstock.spark.pipestream.stream_reader import PipeStreamStreamReader
    from penstock.spark.pipestream.stream_writer import PipeStreamStreamWriter
    from penstock.spark.pipestream.writer import PipeStreamWriter

__all__ = ["PipeStreamDataSource"]


@dataclass(frozen=True)
class PipeStreamDataSource(DataSource):
    """``format("pipestream")``, once ``penstock.spark.register(spark)`` was called.

    Options, of the sink as of the source:
        address: ``HOST:PORT`` of a PipeStream server; or what ``save``, ``start`` and ``load`` are given.
        fingerprint: SHA-256 of the server's certificate in hex, as ``serve`` prints it, to trust just this one.
        ca: A file of certificates (PEM) to trust instead; like ``cert`` and ``key`` it is read on the executors.
        system_ca: ``true`` to trust the certificates of the machine instead.
        cert, key: The client's certificate and its private key (PEM files).

    Options of the sink:
        scopes: ``document``: each run of rows of one document is a scope below a root entity of the document. By
            default, ``none``, every row is an entity of the root scope.
        policy: What becomes of rows that the server does not take, and of their documents, with ``scopes=document``:
            ``lenient``, ``quorum:0.8,on-failure=retry,max-retries=5`` and the like, as
            `penstock.pipestream.CompletionPolicy.parse` reads it. Without one every row counts, and the job fails.
        atomic: ``false`` to do without a transaction: the rows of a task are readable as soon as it has ended, and once
            more for each further attempt of it. For servers that are no sinks of penstock.
        transaction: A name for what a batch writes, 1 to 256 bytes: a job that is run again under the same name fails,
            and writes nothing a second time. By default each job has its own.
        transactionSecret, transactionSecretFile: What proves to the sink that a transaction is this job's or stream's:
            at least 16 bytes, the same whenever it is run again; or a file of the driver with it. By default that of
            ``PENSTOCK_TRANSACTION_SECRET`` in the driver's environment, else one that is made: for a stream beside its
            checkpoint, for a job with a ``transaction`` in the driver's state folder.
        ignoreExtra: ``true`` to leave out columns that the sink does not have.

    Columns of the sink: ``content`` (binary, or string as UTF-8), and, each only if you like, ``document``, ``path``
    (array<string>), ``type`` (content type), ``metadata`` (map<string,string>).
    """

    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "pipestream"

    def schema(self) -> StructType:
        """The columns of a row that is read. Any of them may be chosen by ``schema(...)``."""
        return ROW_COLUMNS

    def reader(self, schema: StructType) -> "PipeStreamReader":
        """Read a sink's closed sessions."""
        from penstock.spark.pipestream.reader import PipeStreamReader

        return PipeStreamReader.of(dict(self.options), schema)

    def streamReader(self, schema: StructType) -> "PipeStreamStreamReader":  # noqa: N802 - Spark's name
        """Follow a sink."""
        from penstock.spark.pipestream.stream_reader import PipeStreamStreamReader

        return PipeStreamStreamReader.of(dict(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> "PipeStreamWriter":
        """Check options and columns; nothing is connected yet."""
        from penstock.spark.pipestream.writer import PipeStreamWriter

        return PipeStreamWriter.of(dict(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "PipeStreamStreamWriter":  # noqa: N802 - Spark's
        """Check options and columns; nothing is connected yet."""
        from penstock.spark.pipestream.stream_writer import PipeStreamStreamWriter

        return PipeStreamStreamWriter.of(dict(self.options), schema, overwrite=overwrite)
