"""Document and log pipelines for Spark: split documents, send the parts over QUIC, and prove that they have arrived.

Each protocol has its own module, for example ``penstock.pipestream`` and ``penstock.lumberjack``. The modules
``penstock.documents`` and ``penstock.spark`` build on them. Importing ``penstock`` alone loads neither the Rust core
nor Spark.
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
    """Look up ``__version__`` on first access: the lookup takes a quarter of the time that a command needs to start."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    found: str = version("penstock")
    globals()[name] = found
    return found
