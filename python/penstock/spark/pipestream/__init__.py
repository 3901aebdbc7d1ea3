"""The data source "pipestream": rows that become entities of a PipeStream server, and a sink's entities as rows.

A write sends the rows of each task in a session of its own. A read returns what a sink has stored of closed sessions,
from the sink's folder or object store, or through the server that stores it.

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
    """The data source of ``format("pipestream")``, after ``penstock.spark.register(spark)``.

    Options of both the sink and the source:
        address: ``HOST:PORT`` of a PipeStream server, or the URI of a prefix in an object store; a source also accepts
            the folder of a sink. The same as the argument of ``save``, ``start`` and ``load``.
        fingerprint: SHA-256 of the server's certificate in hex, as ``serve`` prints it; only this certificate is
            trusted.
        ca: A file of certificates (PEM) to trust instead; like ``cert`` and ``key`` it is read on the executors.
        system_ca: ``true`` to trust the certificates of the machine instead.
        cert, key: The client's certificate and its private key (PEM files).
        storage.NAME: Options of an object store.

    Options of the sink:
        scopes: ``document``: each run of rows of one document is a scope below a root entity of the document. By
            default, ``none``, every row is an entity of the root scope.
        policy: How rows that the server does not accept are handled, and their documents; requires ``scopes=document``.
            For example ``lenient`` or ``quorum:0.8,on-failure=retry,max-retries=5``, as parsed by
            `penstock.pipestream.CompletionPolicy.parse`. Without a policy a single such row fails the job.
        atomic: ``false`` to write without a transaction: the rows of a task become readable when it ends, and again for
            each further attempt of it. Needed for servers that are not penstock sinks.
        transaction: A name for what a batch writes, 1 to 256 bytes: a job that runs again under the same name fails and
            writes nothing a second time. By default each job has its own.
        transactionSecret, transactionSecretFile: The secret that proves to the sink that a transaction belongs to this
            job or stream: at least 16 bytes, the same for every run; or a file on the driver that contains it. The
            default is ``PENSTOCK_TRANSACTION_SECRET`` in the driver's environment, otherwise a generated secret: for a
            stream it is stored in its checkpoint, for a job with a ``transaction`` in the driver's state folder.
        ignoreExtra: ``true`` to omit columns that the sink does not have; by default they are an error.

    Columns of the sink: ``content`` (binary, or string as UTF-8), and, all optional, ``document``, ``path``
    (array<string>), ``type`` (content type), ``metadata`` (map<string,string>), ``doc_id`` and ``owner`` (struct of
    ``owner_id``, ``group_id`` and ``scopes``).

    ``docs/spark.md`` lists the options of the source.
    """

    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        """Return the name to pass to ``format``."""
        return "pipestream"

    def schema(self) -> StructType:
        """Return the columns of a source; ``schema(...)`` may select any of them."""
        return ROW_COLUMNS

    def reader(self, schema: StructType) -> "PipeStreamReader":
        """Check options and columns and return a reader of a sink's closed sessions."""
        from penstock.spark.pipestream.reader import PipeStreamReader

        return PipeStreamReader.of(dict(self.options), schema)

    def streamReader(self, schema: StructType) -> "PipeStreamStreamReader":  # noqa: N802 - Spark's name
        """Check options and columns and return a reader that follows a sink."""
        from penstock.spark.pipestream.stream_reader import PipeStreamStreamReader

        return PipeStreamStreamReader.of(dict(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> "PipeStreamWriter":
        """Check options and columns; no connection is opened yet."""
        from penstock.spark.pipestream.writer import PipeStreamWriter

        return PipeStreamWriter.of(dict(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "PipeStreamStreamWriter":  # noqa: N802 - Spark's
        """Check options and columns; no connection is opened yet."""
        from penstock.spark.pipestream.stream_writer import PipeStreamStreamWriter

        return PipeStreamStreamWriter.of(dict(self.options), schema, overwrite=overwrite)
