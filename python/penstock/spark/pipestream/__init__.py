"""The data source "pipestream": rows that become entities of a PipeStream server, each task's in a session of its own.

Example:
    >>> from penstock.spark import local_session
    >>> spark = local_session()  # doctest: +SKIP
    >>> rows = spark.createDataFrame([(b"octets", "a.bin")], "content binary, document string")  # doctest: +SKIP
    >>> writer = rows.write.format("pipestream").mode("append")  # doctest: +SKIP
    >>> writer.option("fingerprint", "ab" * 32).save("127.0.0.1:4433")  # doctest: +SKIP
"""

from collections.abc import MutableMapping
from dataclasses import dataclass

from pyspark.sql.datasource import DataSource

__all__ = ["PipeStreamDataSource"]


@dataclass(frozen=True)
class PipeStreamDataSource(DataSource):
    """``format("pipestream")``, once ``penstock.spark.register(spark)`` was called."""

    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "pipestream"
