"""The data source "documents": a row for each file of a folder, its path but not its bytes.

Spark's own ``binaryFile`` makes one row of a file's bytes, 2 GiB at most, and fills partitions by its own rules. Here
the driver lists the files and spreads them over the partitions by size, and the task that takes a document apart reads
the file as a stream.

Nothing that is in the folder is left out in silence: of what cannot be read ``dehydrate`` makes a FAILED row that says
why.
"""

import heapq
import json
import os
import stat
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from penstock._folders import list_documents
from penstock.errors import SparkError
from penstock.spark._paths import from_option, to_column

__all__ = ["DocumentsPartition", "DocumentsReader", "DocumentsSource"]

ARROW_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("document", pa.string()),
        pa.field("length", pa.int64()),
        pa.field("modified", pa.timestamp("us", tz="UTC")),
    ]
)

_TARGET_BYTES = 64 << 20
_BATCH_ROWS = 4096
# What opening a document and announcing it costs, as octets: it keeps thousands of small files from sharing one task.
_OPEN_COST = 64 << 10


@dataclass(frozen=True, slots=True)
class _File:
    """A file as it was when the driver listed it."""

    path: str
    document: str
    length: int
    modified: int
    """Microseconds since 1970."""


@dataclass(frozen=True)
class DocumentsPartition(InputPartition):
    """The files that one task reads."""

    files: tuple[_File, ...]


@dataclass(frozen=True)
class DocumentsReader(DataSourceReader):
    """Lists on the driver, hands out rows on the executors."""

    paths: tuple[str, ...]
    target_bytes: int
    min_partitions: int

    def partitions(self) -> list[DocumentsPartition]:
        """Spread the files so that the partitions weigh about the same, heaviest file first."""
        files = [_file(*found) for path in self.paths for found in list_documents(path)]
        total = sum(_cost(file) for file in files)
        count = min(len(files), max(self.min_partitions, -(-total // self.target_bytes)))
        filled: list[list[_File]] = [[] for _ in range(count)]
        weights = [(0, index) for index in range(count)]
        for file in sorted(files, key=_cost, reverse=True):
            weight, index = weights[0]
            filled[index].append(file)
            heapq.heapreplace(weights, (weight + _cost(file), index))
        return [DocumentsPartition(tuple(sorted(part, key=lambda file: file.path))) for part in filled]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Hand out the rows of a partition."""
        if not isinstance(partition, DocumentsPartition):
            raise TypeError(f"not a partition of this source: {partition!r}")
        for start in range(0, len(partition.files), _BATCH_ROWS):
            files = partition.files[start : start + _BATCH_ROWS]
            columns = [[getattr(file, name) for file in files] for name in ARROW_SCHEMA.names]
            yield pa.RecordBatch.from_arrays(
                [pa.array(column, field.type) for column, field in zip(columns, ARROW_SCHEMA, strict=True)],
                schema=ARROW_SCHEMA,
            )


@dataclass(frozen=True)
class DocumentsSource(DataSource):
    """``spark.read.format("documents").load(folder)``, once ``penstock.spark.register(spark)`` was called.

    Options:
        path, paths: Folders, listed with all that is below them, or files; local paths or ``file:`` URIs.
        targetPartitionBytes: The octets of files that one task should get, 64 MiB by default. A file is never divided.
        minPartitions: How many tasks there should be at least, as far as there are files; by default the number of the
            driver's cores.

    Columns: ``path`` (a ``file:`` URI where a name is not UTF-8), ``document`` (the path relative to the folder, with
    ``/``; the base name of a file that was named itself), ``length`` in octets, ``modified``.
    """

    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "documents"

    def schema(self) -> StructType:
        """The four columns."""
        return from_arrow_schema(ARROW_SCHEMA)

    def reader(self, schema: StructType) -> DocumentsReader:
        """Check the options; nothing is listed yet."""
        if schema != self.schema():
            raise SparkError(f"the data source documents has the columns {', '.join(ARROW_SCHEMA.names)} and no others")
        return DocumentsReader(
            tuple(_paths(self.options)),
            _positive(self.options, "targetPartitionBytes", _TARGET_BYTES),
            _positive(self.options, "minPartitions", os.cpu_count() or 1),
        )


def _paths(options: Mapping[str, str]) -> list[str]:
    # Spark hands over what load() takes as `path`, or as `paths`, a JSON array, where it takes several.
    given: list[str] = json.loads(options["paths"]) if "paths" in options else []
    if "path" in options:
        given.append(options["path"])
    if not given:
        raise SparkError('the data source documents needs a folder: spark.read.format("documents").load(folder)')
    paths = []
    for path in given:
        local = from_option(path)
        if not os.path.lexists(local):
            raise SparkError(f"the data source documents is to list {path}, which does not exist")
        # Relative paths are relative to the driver's folder, which executors do not have.
        paths.append(str(Path(local).absolute()))
    return paths


def _positive(options: Mapping[str, str], name: str, default: int) -> int:
    given = options.get(name)
    if given is None:
        return default
    if not given.isdecimal() or int(given) < 1:
        raise SparkError(f"the option {name} of the data source documents must be a positive number, not {given!r}")
    return int(given)


def _cost(file: _File) -> int:
    return file.length + _OPEN_COST


def _file(document: str, path: str) -> _File:
    try:
        found = Path(path).stat()
    except OSError:
        return _File(to_column(path), document, 0, 0)
    length = found.st_size if stat.S_ISREG(found.st_mode) else 0
    return _File(to_column(path), document, length, found.st_mtime_ns // 1000)
