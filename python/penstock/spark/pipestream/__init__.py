"""The data source "pipestream": rows that become entities of a PipeStream server, and a sink's entities as rows.

What is written is sent, each task's rows in a session of its own. What is read is what a sink has kept of closed
sessions: in its folder, or through the server that keeps it.

Example:
    >>> from penstock.spark import local_session
    >>> spark = local_session()  # doctest: +SKIP
    >>> rows = spark.createDataFrame([(b"octets", "a.bin")], "content binary, document string")  # doctest: +SKIP
    >>> writer = rows.write.format("pipestream").mode("append")  # doctest: +SKIP
    >>> writer.option("fingerprint", "ab" * 32).save("127.0.0.1:4433")  # doctest: +SKIP
    >>> spark.read.format("pipestream").load("/data/sink").where("status = 'COMPLETE'").count()  # doctest: +SKIP
"""

from collections.abc import MutableMapping
from dataclasses import dataclass

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from penstock.spark.pipestream.reader import PipeStreamReader
from penstock.spark.pipestream.source import ROW_COLUMNS
from penstock.spark.pipestream.stream_reader import PipeStreamStreamReader

__all__ = ["PipeStreamDataSource"]


@dataclass(frozen=True)
class PipeStreamDataSource(DataSource):
    """``format("pipestream")``, once ``penstock.spark.register(spark)`` was called."""

    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "pipestream"

    def schema(self) -> StructType:
        """The columns of a row that is read. Any of them may be chosen by ``schema(...)``."""
        return ROW_COLUMNS

    def reader(self, schema: StructType) -> PipeStreamReader:
        """Read a sink's closed sessions."""
        return PipeStreamReader.of(dict(self.options), schema)

    def streamReader(self, schema: StructType) -> PipeStreamStreamReader:  # noqa: N802 - Spark's name
        """Follow a sink."""
        return PipeStreamStreamReader.of(dict(self.options), schema)
