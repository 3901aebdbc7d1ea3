"""Documents taken apart and put together inside Spark jobs.

The plan is one task for each document: paths go in, the task streams the file, sends every part to a sink over QUIC and
gives a row for each part, failed ones too.

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

# Spark starts a Python process for each step of a query, which imports the package of the data source that it was sent:
# it is to load the modules that it uses, and no others.
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
    """Import the module of a name when the name is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__


def register(spark: "SparkSession") -> None:
    """Make the data sources of penstock known to a session: "documents", "lumberjack", "pimp", "pipestream", "quicx".

    `local_session` has done it already. Only for this session; once more changes nothing.
    """
    from penstock.spark.documents_source import DocumentsSource
    from penstock.spark.lumberjack import LumberjackDataSource
    from penstock.spark.pimp import PimpDataSource
    from penstock.spark.pipestream import PipeStreamDataSource
    from penstock.spark.quicx import QuicxDataSource

    for source in (DocumentsSource, LumberjackDataSource, PimpDataSource, PipeStreamDataSource, QuicxDataSource):
        spark.dataSource.register(source)
