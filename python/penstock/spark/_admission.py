"""How much a micro-batch of a streaming source reads: its options, and the limits that Spark derives from them."""

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from penstock.errors import SparkError
from penstock.spark._options import Options

__all__ = ["budget", "default_limit", "read_limits"]

_ALL = (1 << 63) - 1


def read_limits(options: Options) -> tuple[int | None, int | None]:
    """Read ``maxRowsPerTrigger`` and ``maxBytesPerTrigger``; return ``None`` for each that was not given."""
    rows, size = (
        options.positive(name, 0) if options.text(name) else None
        for name in ("maxRowsPerTrigger", "maxBytesPerTrigger")
    )
    return rows, size


def default_limit(max_rows: int | None, max_bytes: int | None) -> ReadLimit:
    """Return the limit set by the options; if both are set, `budget` applies the other one as well."""
    if max_rows is not None:
        return ReadMaxRows(max_rows)
    return ReadAllAvailable() if max_bytes is None else ReadMaxBytes(max_bytes)


def budget(limit: ReadLimit, max_bytes: int | None, source: str) -> tuple[int, int]:
    """Return how many rows and bytes a micro-batch may have.

    Raises:
        SparkError: The source does not support this kind of limit.
    """
    if isinstance(limit, ReadMaxRows):
        return limit.max_rows, max_bytes or _ALL
    if isinstance(limit, ReadMaxBytes):
        return _ALL, limit.max_bytes
    if isinstance(limit, ReadAllAvailable):
        return _ALL, _ALL
    raise SparkError(f"the {source} source does not support the read limit {type(limit).__name__}")
