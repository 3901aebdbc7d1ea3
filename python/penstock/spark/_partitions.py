"""Partitions as the readers of the data sources receive them."""

from typing import TypeVar

from pyspark.sql.datasource import InputPartition

__all__ = ["own_partition"]

_T = TypeVar("_T", bound=InputPartition)


def own_partition(partition: InputPartition, kind: type[_T]) -> _T | None:
    """Return a partition as what its source has made; ``None`` for the one that Spark passes if there are none.

    For a batch source without partitions Spark runs one task, whose partition is ``InputPartition(None)``.

    Raises:
        TypeError: The partition is of another source.
    """
    if isinstance(partition, kind):
        return partition
    if type(partition) is InputPartition and partition.value is None:
        return None
    raise TypeError(f"not a partition of this source: {partition!r}")
