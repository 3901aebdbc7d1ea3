"""Send log lines from tasks to the driver through an accumulator; they arrive when their task ends."""

import logging
from typing import Any

from pyspark import AccumulatorParam, SparkContext, TaskContext

__all__ = ["WorkerLogs"]

_MOST = 1_000
"""The most lines of a task that reach the driver; one more line says that the rest is in the executor's log."""

Line = tuple[int, str]


class _Lines(AccumulatorParam[list[Line]]):
    """Collects lines in a task and logs them on the driver."""

    def __init__(self, name: str) -> None:
        self._name = name

    def zero(self, value: list[Line]) -> list[Line]:  # noqa: ARG002
        return []

    def addInPlace(self, value1: list[Line], value2: list[Line]) -> list[Line]:  # noqa: N802 -- PySpark's name
        if TaskContext.get() is None:
            logger = logging.getLogger(self._name)
            for level, line in value2:
                logger.log(level, "%s", line)
            return []
        return value1 + value2


class WorkerLogs:
    """Collects the log lines of a task for the driver."""

    def __init__(self, accumulator: Any) -> None:
        self._accumulator = accumulator
        self._count = 0

    @classmethod
    def of_this_driver(cls, logger: logging.Logger) -> "WorkerLogs | None":
        """Return logs for this driver; None without a session, or with a Spark Connect session."""
        context = SparkContext._active_spark_context
        return None if context is None else cls(context.accumulator([], _Lines(logger.name)))

    def add(self, level: int, line: str) -> None:
        """Add a line."""
        self._count += 1
        if self._count <= _MOST:
            self._accumulator.add([(level, line)])
        elif self._count == _MOST + 1:
            self._accumulator.add([(logging.WARNING, f"more than {_MOST} lines: the rest is in the executor's log")])
