"""A step of a query that fails when a task is tried for the first time."""

import os
import signal

__all__ = ["failing_first"]


def failing_first():
    """Give a step for mapInArrow that, in the first attempt of a task, kills its worker or raises behind its last rows.

    It is made here so that it is pickled by value: the workers do not import this module.
    """

    def step(batches):
        from pyspark import TaskContext

        context = TaskContext.get()
        yield from batches
        if context.attemptNumber() == 0:
            if context.partitionId() == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("the first attempt is to fail")

    return step
