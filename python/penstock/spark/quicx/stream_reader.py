"""The streaming source: a worker whose function is the query.

An offset is the number of tasks that a run of the source has received, and a count of ticks. The driver holds the tasks
themselves, never more than a worker holds, and sends them with the partitions. When a query is restarted, tasks that
the earlier run had not committed no longer belong to the source: the daemon assigns them again. Such a micro-batch is
therefore empty when Spark repeats it, and its tasks arrive in a later one.

Spark commits a micro-batch only when it plans the next one. So that the last tasks need not wait for new ones, an idle
source advances by one tick, which is an empty batch and commits the one before it. When the query stops, the source
reads the last commit from the query's log of commits.
"""

import logging
import os
import uuid
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock.errors import Error, SparkError
from penstock.spark._admission import budget, default_limit
from penstock.spark._options import Options
from penstock.spark.lumberjack.checkpoint import committed_offsets
from penstock.spark.quicx.held import Held, Taking
from penstock.spark.quicx.reach import read_reach, read_spool
from penstock.spark.quicx.source import TASK_COLUMNS, QuicxPartition, divide

__all__ = ["QuicxStreamReader", "TaskOffset"]

_LOG = logging.getLogger("penstock.spark")
_MOST = 65_535


@dataclass(frozen=True)
class TaskOffset:
    """An offset of the stream."""

    run: str = ""
    """The run of the source to which ``taken`` refers; empty before any run."""
    taken: int = 0
    """How many tasks arrived before this offset."""
    tick: int = 0
    """How many empty batches an idle source has added."""

    @classmethod
    def of(cls, offset: dict[str, Any]) -> "TaskOffset":
        """Read an offset that Spark has stored."""
        try:
            return cls(str(offset["run"]), int(offset["taken"]), int(offset["tick"]))
        except (LookupError, TypeError, ValueError):
            raise SparkError(
                f"the checkpoint belongs to another source: {offset!r} is not an offset of this one"
            ) from None

    def offset(self) -> dict[str, Any]:
        """Return the form that Spark stores."""
        return {"run": self.run, "taken": self.taken, "tick": self.tick}


@dataclass
class QuicxStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Receives tasks on the driver. No connection is opened before Spark asks for an offset."""

    taking: Taking
    names: tuple[str, ...]
    most_partitions: int = 1
    checkpoint: str | None = None
    max_bytes: int | None = None
    _held: Held | None = field(default=None, init=False)
    _run: str = field(default="", init=False)
    _until: int | None = field(default=None, init=False)
    """The number of tasks at which the trigger availableNow stops."""

    @classmethod
    def of(cls, given: dict[str, str], schema: StructType) -> "QuicxStreamReader":
        """Create the reader from the options. Nothing is opened."""
        options = Options(given, "source", "quicx")
        names = tuple(schema.fieldNames())
        known = TASK_COLUMNS.names
        if any(name not in known or schema[name].dataType != TASK_COLUMNS[name].dataType for name in names):
            raise SparkError(f"the quicx source has only the columns {TASK_COLUMNS.simpleString()}")
        reader = cls(
            Taking(
                read_reach(options),
                tuple(options.names("types") or ()),
                options.within("maxRowsPerTrigger", 1, _MOST) or 1_000,
                options.positive("retry", 60),
                *read_spool(options),
            ),
            names,
            options.positive("minPartitions", os.cpu_count() or 1),
            options.text("checkpointLocation"),
            options.positive("maxBytesPerTrigger", 0) if options.text("maxBytesPerTrigger") else None,
        )
        options.finish()
        return reader

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset before any task."""
        return TaskOffset().offset()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit set by the options."""
        return default_limit(self.taking.most, self.max_bytes)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Collect the tasks from the daemon and return the offset up to which the next micro-batch reads."""
        rows, size = budget(limit, self.max_bytes, "quicx")
        first, held = TaskOffset.of(start), self._open()
        held.take(settled=self._until is not None)
        position = self._position(first)
        end = position
        for task in held.ahead(position):
            size -= len(task.payload)
            if end - position >= rows or (size < 0 and end > position):
                break
            end += 1
        if self._until is not None:
            end = min(end, max(position, self._until + held.again))
        if end > position:
            held.plan(end)
            return TaskOffset(self._run, end, first.tick).offset()
        idle = first.run == self._run and position > held.committed
        return replace(first, tick=first.tick + 1).offset() if idle else start

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset of the newest data, for the progress of the query."""
        return TaskOffset(self._run, self._open().end).offset()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Limit the query to the tasks that wait now."""
        held = self._open()
        # Read before any task is requested: a task in transit neither waits at the daemon nor has arrived.
        self._until = held.end + held.waiting()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[QuicxPartition]:
        """Divide the tasks between two offsets into partitions."""
        first, last = TaskOffset.of(start), TaskOffset.of(end)
        held = self._open()
        if last.run != self._run:
            if last.taken > (first.taken if first.run == last.run else 0):
                _LOG.warning(
                    "a micro-batch of an earlier run is repeated as an empty one: its tasks are delivered again"
                )
            return []
        tasks = list(held.between(self._position(first), last.taken))
        return divide(tasks, self.most_partitions, self.names, self.taking.spool, self.taking.storage)

    def read(self, partition: InputPartition) -> Any:
        """Return the tasks of a partition, on an executor."""
        if not isinstance(partition, QuicxPartition):
            raise TypeError(f"not a partition of this source: {partition!r}")
        return partition.read()

    def commit(self, end: dict[str, Any]) -> None:
        """Report the tasks of a micro-batch as DONE."""
        self._commit(TaskOffset.of(end))

    def stop(self) -> None:
        """Report the tasks that the query has committed as DONE, and release all others."""
        held = self._held
        if held is None:
            return
        try:
            for offset in committed_offsets(self.checkpoint) if self.checkpoint is not None else ():
                if offset.get("run") == self._run:
                    self._commit(TaskOffset.of(offset))
        except Error:
            raise
        except (OSError, ValueError) as error:
            _LOG.warning(
                "the checkpoint %s cannot be read, so completed tasks are delivered again: %s", self.checkpoint, error
            )
        finally:
            self._held = None
            held.close()

    def _open(self) -> Held:
        if self._held is None:
            self._held, self._run = Held(self.taking), uuid.uuid4().hex
        return self._held

    def _position(self, offset: TaskOffset) -> int:
        """Return the number of the next task: 0 if the offset belongs to another run."""
        return offset.taken if offset.run == self._run else 0

    def _commit(self, offset: TaskOffset) -> None:
        if self._held is not None and offset.run == self._run:
            self._held.done(offset.taken)
