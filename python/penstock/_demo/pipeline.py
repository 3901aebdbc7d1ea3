"""The Spark job of the demo: paths in, parts and composites out."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from penstock._demo.aside import Aside
from penstock._demo.sink import SinkProcess
from penstock.errors import SparkError
from penstock.spark import COMPOSITE_SCHEMA, PART_SCHEMA, DocumentsSource, dehydrate, local_session, rehydrate, vgi_map
from penstock.spark.functions import Dehydrate
from penstock.spark.vgi import VgiMap

__all__ = ["Listing", "Pipeline"]

_CONFIG = {
    # The demo ends before the JVM's second compiler pays off; without it the start of Spark takes half the time.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    # Rows can have megabytes of text: check the page size after each row instead of every hundred, and keep row groups
    # small to save memory.
    "spark.hadoop.parquet.page.size.row.check.min": "1",
    "spark.hadoop.parquet.block.size": str(32 << 20),
}

# The demo reads no text from larger parts. The worker holds a batch of about 8 MiB at a time, or one part.
_MAX_CONTENT = 64 << 20


@dataclass(frozen=True)
class _WithTexts:
    """Both steps in one task, so that contents pass from one to the other without going through the JVM."""

    apart: Dehydrate
    texts: VgiMap

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.texts(self.apart(batches))


class Listing:
    """The documents in a folder, with their number and sizes in bytes."""

    def __init__(self, folder: Path) -> None:
        source = DocumentsSource({"path": str(folder)})
        files = [file for partition in source.reader(source.schema()).partitions() for file in partition.files]
        self.documents = len(files)
        self.bytes = sum(file.length for file in files)
        self.files = [(file.length, file.document, file.path) for file in files]


class Pipeline:
    """The demo's computations in a Spark session, which is stopped at the end of the ``with`` block."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._spark = local_session("penstock demo", config=_CONFIG, log=log)
        self._parts: DataFrame | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # If the JVM has died there is nothing to stop, and that error is the one to report.
        with suppress(Py4JError, OSError):
            self._spark.stop()

    def take_apart(self, documents: Path, sink: SinkProcess, receipts: Path, results: Path, aside: Aside) -> None:
        """Send every part of every document, have a worker read its text, and write a row for each part.

        Meanwhile a Quicx worker splits the documents of ``aside``.
        """
        paths = self._spark.read.format("documents").load(str(documents))
        if aside.documents:
            paths = paths.where(~paths["document"].isin(aside.documents))
        apart = dehydrate(
            sink.address, fingerprint=sink.fingerprint, receipts=str(receipts), text=False, max_content=_MAX_CONTENT
        )
        made = _WithTexts(apart, vgi_map([sys.executable, "-m", "penstock._demo.texts"], "read"))
        # Persisted, so that the written rows and the reassembled ones are of the same sessions; on disk, because their
        # text would take too much of the JVM's memory.
        self._parts = paths.mapInArrow(made, PART_SCHEMA).persist(StorageLevel.DISK_ONLY)
        with self._one_line():
            if aside.documents:
                # Compute Spark's own documents first, while the worker processes the others.
                self._parts.count()
                aside.wait()
                self._parts = self._parts.union(self._spark.read.schema(PART_SCHEMA).parquet(str(aside.rows)))
            self._parts.write.parquet(str(results / "parts"))

    def put_together(self, results: Path) -> None:
        """Write a composite for each document that was split."""
        if self._parts is None:
            raise SparkError("no document was split")
        with self._one_line():
            self._parts.mapInArrow(rehydrate(), COMPOSITE_SCHEMA).write.parquet(str(results / "composites"))

    @contextmanager
    def _one_line(self) -> Iterator[None]:
        """Report a failed job with the worker's message only; its traceback and Spark's are in the log."""
        try:
            yield
        except PySparkException as error:
            raise SparkError(_cause(str(error)), "application") from error
        except (Py4JError, OSError) as error:
            raise SparkError(f"the JVM of Spark ended; see {self._log}", "io") from error


def _cause(text: str) -> str:
    marker = "penstock.errors."
    if marker in text:
        return text.rpartition(marker)[2].partition(": ")[2].partition("\n")[0]
    return text.strip().partition("\n")[0]
