"""Split and reassemble documents inside Spark jobs.

Each document is processed by one task: the task reads the path from a row, streams the file, sends every part to a sink
over QUIC and returns a row for each part, including failed ones.

Example:
    >>> from penstock.spark import COMPOSITE_SCHEMA, PART_SCHEMA, dehydrate, local_session, rehydrate
    >>> spark = local_session()  # doctest: +SKIP
    >>> documents = spark.read.format("documents").load("/data/inbox")  # doctest: +SKIP
    >>> take_apart = dehydrate("127.0.0.1:4433", fingerprint="ab" * 32, receipts="/data/receipts")
    >>> parts = documents.mapInArrow(take_apart, PART_SCHEMA)  # doctest: +SKIP
    >>> composites = parts.mapInArrow(rehydrate(), COMPOSITE_SCHEMA)  # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark._changes import CHANGE_ARROW_SCHEMA, CHANGE_SCHEMA, changes
    from penstock.spark.documents_source import DocumentsSource
    from penstock.spark.functions import Dehydrate, Rehydrate, dehydrate, redeem, rehydrate
    from penstock.spark.lumberjack import LumberjackDataSource
    from penstock.spark.pimp import PimpDataSource, stop_when_cancelled
    from penstock.spark.pipestream import PipeStreamDataSource
    from penstock.spark.plans import ingest
    from penstock.spark.quicx import QuicxDataSource
    from penstock.spark.schemas import COMPOSITE_ARROW_SCHEMA, COMPOSITE_SCHEMA, PART_ARROW_SCHEMA, PART_SCHEMA
    from penstock.spark.session import local_session
    from penstock.spark.vgi import VgiMap, vgi_map
    from penstock.spark.watching import Progress, ProgressListener, QueryProgress, progress
    from penstock.spark.workers import Worker, check_workers

__all__ = [
    "CHANGE_ARROW_SCHEMA",
    "CHANGE_SCHEMA",
    "COMPOSITE_ARROW_SCHEMA",
    "COMPOSITE_SCHEMA",
    "PART_ARROW_SCHEMA",
    "PART_SCHEMA",
    "Dehydrate",
    "DocumentsSource",
    "LumberjackDataSource",
    "PimpDataSource",
    "PipeStreamDataSource",
    "Progress",
    "ProgressListener",
    "QueryProgress",
    "QuicxDataSource",
    "Rehydrate",
    "VgiMap",
    "Worker",
    "changes",
    "check_workers",
    "dehydrate",
    "ingest",
    "local_session",
    "progress",
    "redeem",
    "register",
    "rehydrate",
    "stop_when_cancelled",
    "vgi_map",
]

# Spark starts a Python process for each step of a query, and that process imports the package of the data source that
# it was sent. Names are imported lazily so that it loads only the modules that it uses.
_MODULES = {
    "penstock.spark._changes": ("CHANGE_ARROW_SCHEMA", "CHANGE_SCHEMA", "changes"),
    "penstock.spark.documents_source": ("DocumentsSource",),
    "penstock.spark.functions": ("Dehydrate", "Rehydrate", "dehydrate", "redeem", "rehydrate"),
    "penstock.spark.lumberjack": ("LumberjackDataSource",),
    "penstock.spark.pimp": ("PimpDataSource", "stop_when_cancelled"),
    "penstock.spark.pipestream": ("PipeStreamDataSource",),
    "penstock.spark.plans": ("ingest",),
    "penstock.spark.quicx": ("QuicxDataSource",),
    "penstock.spark.schemas": ("COMPOSITE_ARROW_SCHEMA", "COMPOSITE_SCHEMA", "PART_ARROW_SCHEMA", "PART_SCHEMA"),
    "penstock.spark.session": ("local_session",),
    "penstock.spark.vgi": ("VgiMap", "vgi_map"),
    "penstock.spark.watching": ("Progress", "ProgressListener", "QueryProgress", "progress"),
    "penstock.spark.workers": ("Worker", "check_workers"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import the module that defines a name when the name is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__


def register(spark: "SparkSession") -> None:
    """Register penstock's data sources with a session: "documents", "lumberjack", "pimp", "pipestream" and "quicx".

    The registration holds for this session only, and repeating it changes nothing. Sessions from `local_session` are
    registered already.

    Args:
        spark: The session.
    """
    from penstock.spark.documents_source import DocumentsSource
    from penstock.spark.lumberjack import LumberjackDataSource
    from penstock.spark.pimp import PimpDataSource
    from penstock.spark.pipestream import PipeStreamDataSource
    from penstock.spark.quicx import QuicxDataSource

    for source in (DocumentsSource, LumberjackDataSource, PimpDataSource, PipeStreamDataSource, QuicxDataSource):
        spark.dataSource.register(source)
