"""Identifies the micro-batch and the query that a task works on."""

from pyspark import TaskContext

from penstock.errors import SparkError

__all__ = ["micro_batch"]

# Properties that Spark sets for its tasks: the query's ID, which survives restarts, and the micro-batch's number.
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


def micro_batch(format_name: str) -> str:
    """Return a name that is unique to the micro-batch and the same for every run of it."""
    context = TaskContext.get()
    query, batch = (context.getLocalProperty(name) if context else None for name in (_QUERY, _BATCH))
    if query is None or batch is None:
        raise SparkError(f"the {format_name} sink of a stream can only run in a micro-batch of Structured Streaming")
    return f"spark/{query}/{batch}"
