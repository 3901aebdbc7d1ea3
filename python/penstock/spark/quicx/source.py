"""Quicx tasks as rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from penstock._columns import rows_batch
from penstock.errors import QuicxError, SparkError
from penstock.quicx import Task
from penstock.quicx._spool import Spool, content_of
from penstock.spark._batches import resize

__all__ = ["TASK_COLUMNS", "QuicxPartition", "divide"]

_SCHEMA: pa.Schema = pa.schema([("id", pa.int64()), ("type", pa.string()), ("payload", pa.binary())])

TASK_COLUMNS: StructType = from_arrow_schema(_SCHEMA)
"""The columns of a task as a worker receives it."""


@dataclass(frozen=True)
class QuicxPartition(InputPartition):
    """The input of one Spark task: the Quicx tasks themselves, never more than a worker holds."""

    tasks: tuple[Task, ...]
    names: tuple[str, ...]
    spool: str | None = None
    storage: Mapping[str, str] = field(default_factory=dict)

    def read(self) -> Iterator[pa.RecordBatch]:
        """Return the tasks, with payloads that are in the spool read from there."""
        return resize(self._batch(task) for task in self.tasks)

    def _batch(self, task: Task) -> pa.RecordBatch:
        spool = Spool.at(self.spool, storage=self.storage)
        try:
            payload = content_of(spool, task.payload)
        except QuicxError as error:
            raise SparkError(f"the payload of task {task.id} cannot be read: {error}", error.kind) from error
        row = {"id": task.id, "type": task.type, "payload": payload}
        return rows_batch([row], _SCHEMA).select(list(self.names))


def divide(
    tasks: Sequence[Task], most: int, names: tuple[str, ...], spool: str | None, storage: Mapping[str, str]
) -> list[QuicxPartition]:
    """Divide tasks into at most ``most`` partitions of about equal size."""
    share = -(-len(tasks) // most) if tasks else 1
    return [QuicxPartition(tuple(tasks[at : at + share]), names, spool, storage) for at in range(0, len(tasks), share)]
