"""Documents taken apart on Spark, carried over QUIC as PipeStream entities, and proved to have arrived.

Each protocol is a module of its own: ``penstock.pipestream``, ``penstock.documents``, ``penstock.spark``. Importing
``penstock`` alone loads neither the Rust core nor Spark.
"""

from penstock.errors import (
    DocumentsError,
    Error,
    ErrorKind,
    LumberjackError,
    PimpError,
    PipeStreamError,
    QuicxError,
    SparkError,
    VgiError,
)

__all__ = [
    "DocumentsError",
    "Error",
    "ErrorKind",
    "LumberjackError",
    "PimpError",
    "PipeStreamError",
    "QuicxError",
    "SparkError",
    "VgiError",
    "__version__",
]

__version__: str


def __getattr__(name: str) -> str:
    """Look the version up when it is asked for: to find it takes as long as a quarter of the start of a command."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    found: str = version("penstock")
    globals()[name] = found
    return found
