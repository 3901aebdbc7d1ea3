"""Log lines on their way from tasks to the driver, by an accumulator: they are there when their task is done."""

import logging
from typing import Any

from pyspark import AccumulatorParam, SparkContext, TaskContext

__all__ = ["WorkerLogs"]

_MOST = 1_000
"""Lines of a task; what is more is counted."""

Line = tuple[int, str]


class _Lines(AccumulatorParam[list[Line]]):
    """Adds lines up in a task, and logs them in the driver."""

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
    """Takes the lines of a task."""

    def __init__(self, accumulator: Any) -> None:
        self._accumulator = accumulator
        self._count = 0

    @classmethod
    def of_this_driver(cls, logger: logging.Logger) -> "WorkerLogs | None":
        """Give what logs in this driver; None without a session, or with one of Spark Connect."""
        context = SparkContext._active_spark_context
        return None if context is None else cls(context.accumulator([], _Lines(logger.name)))

    def add(self, level: int, line: str) -> None:
        """Send a line on its way."""
        self._count += 1
        if self._count <= _MOST:
            self._accumulator.add([(level, line)])
        elif self._count == _MOST + 1:
            self._accumulator.add([(logging.WARNING, f"more than {_MOST} lines: the rest is in the executor's log")])
