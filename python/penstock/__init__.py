"""Documents taken apart on Spark, carried over QUIC as PipeStream entities, and proved to have arrived.

Each protocol is a module of its own: ``penstock.pipestream``, ``penstock.documents``, ``penstock.spark``. Importing
``penstock`` alone loads neither the Rust core nor Spark.
"""

from importlib.metadata import version

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

__version__: str = version("penstock")
