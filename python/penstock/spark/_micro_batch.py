"""Which micro-batch of which query a task works on."""

from pyspark import TaskContext

from penstock.errors import SparkError

__all__ = ["micro_batch"]

# What Spark's engine tells its tasks: the query's ID, which its checkpoint keeps over restarts, and the micro-batch's.
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


def micro_batch(format_name: str) -> str:
    """Give what is the same whenever and wherever the micro-batch is run, and of no other one."""
    context = TaskContext.get()
    query, batch = (context.getLocalProperty(name) if context else None for name in (_QUERY, _BATCH))
    if query is None or batch is None:
        raise SparkError(f"the {format_name} sink of a stream can only run in a micro-batch of Structured Streaming")
    return f"spark/{query}/{batch}"
