"""The batch source: the events of a spool."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.errors import LumberjackError, SparkError
from penstock.lumberjack import Position, SpoolReader
from penstock.spark._options import Options
from penstock.spark._partitions import own_partition
from penstock.spark.lumberjack.source import SPOOL_OPTIONS, Columns, LumberjackPartition, Shares, read_spool

__all__ = ["LumberjackReader"]


@dataclass(frozen=True)
class LumberjackReader(DataSourceReader):
    """Divides durable events into partitions on the driver and reads them on the executors; it holds only options."""

    spool: SpoolReader
    columns: Columns
    shares: Shares

    @classmethod
    def of(cls, given: dict[str, str], schema: StructType) -> "LumberjackReader":
        """Create the reader from the options. Only the read key's file is opened."""
        options = Options(given, "source", "lumberjack")
        spool, columns, shares = read_spool(options), Columns.of(schema, options), Shares.read(options)
        options.finish(*SPOOL_OPTIONS)
        return cls(spool, columns, shares)

    def partitions(self) -> list[LumberjackPartition]:
        """Divide the events stored so far into partitions of about equal weight."""
        try:
            tasks = self.shares.divide(self.spool, Position(), None)
        except LumberjackError as error:
            raise SparkError(f"{self.spool!r} cannot be read: {error}", error.kind) from error
        return [LumberjackPartition(self.spool, pieces, self.columns) for pieces in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the events of a partition."""
        own = own_partition(partition, LumberjackPartition)
        return iter(()) if own is None else own.read()
