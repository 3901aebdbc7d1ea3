"""The data source "documents": a row for each file of a folder, with its path but not its bytes.

Spark's own ``binaryFile`` reads a file's bytes into one row, 2 GiB at most, and fills partitions by its own rules. Here
the driver lists the files and spreads them over the partitions by size, and the task that splits a document reads the
file as a stream.

No file of the folder is silently omitted: for a file that cannot be read ``dehydrate`` returns a FAILED row with the
reason.
"""

import heapq
import json
import os
import stat
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from penstock._columns import column
from penstock._folders import list_documents
from penstock._places import Place, check_storage, is_uri
from penstock.errors import SparkError
from penstock.spark._partitions import own_partition
from penstock.spark._paths import from_option, to_column

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo

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
# The cost of opening and announcing a document, in bytes: it keeps thousands of small files from sharing one task.
_OPEN_COST = 64 << 10
_STORAGE = "storage."


@dataclass(frozen=True, slots=True)
class _File:
    """A file as it was when the driver listed it."""

    path: str
    document: str
    length: int
    modified: int
    """When the file was modified, in microseconds since 1970."""


@dataclass(frozen=True)
class DocumentsPartition(InputPartition):
    """The files that one task reads."""

    files: tuple[_File, ...]


@dataclass(frozen=True)
class DocumentsReader(DataSourceReader):
    """The reader of "documents": it lists files on the driver and returns their rows on the executors."""

    paths: tuple[str, ...]
    target_bytes: int
    min_partitions: int
    storage: tuple[tuple[str, str], ...] = ()

    def partitions(self) -> list[DocumentsPartition]:
        """List the files and spread them, heaviest first, over partitions of about equal weight."""
        storage = dict(self.storage)
        files = [file for path in self.paths for file in (_objects(path, storage) if is_uri(path) else _files(path))]
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
        """Return the rows of a partition."""
        own = own_partition(partition, DocumentsPartition)
        if own is None:
            return
        for start in range(0, len(own.files), _BATCH_ROWS):
            files = own.files[start : start + _BATCH_ROWS]
            columns = [column([getattr(file, field.name) for file in files], field.type) for field in ARROW_SCHEMA]
            yield pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)


@dataclass(frozen=True)
class DocumentsSource(DataSource):
    """The data source of ``spark.read.format("documents").load(folder)``, after ``penstock.spark.register(spark)``.

    Options:
        path, paths: Folders, which are listed recursively, or files; local paths, ``file:`` URIs, or URIs of object
            stores: ``s3://``, ``gs://``, ``abfs(s)://``, ``hdfs://``.
        storage.NAME: An option of the store, for example ``storage.endpoint``; ``docs/objects.md`` lists them.
        targetPartitionBytes: How many bytes of files one task should get, 64 MiB by default. A file is never divided.
        minPartitions: The minimum number of tasks, but no more than there are files; by default the number of the
            driver's cores.

    Columns: ``path`` (a URI for an object in a store; a ``file:`` URI if a name is not UTF-8), ``document`` (the path
    relative to the folder, with ``/``; for a file named directly its base name), ``length`` in bytes, ``modified``.
    """

    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        """Return the name to pass to ``format``."""
        return "documents"

    def schema(self) -> StructType:
        """Return the four columns."""
        return from_arrow_schema(ARROW_SCHEMA)

    def reader(self, schema: StructType) -> DocumentsReader:
        """Check the options and return a reader; the files are not listed yet."""
        if schema != self.schema():
            raise SparkError(f"the data source documents has only the columns {', '.join(ARROW_SCHEMA.names)}")
        storage = {
            name.removeprefix(_STORAGE): value for name, value in self.options.items() if name.startswith(_STORAGE)
        }
        return DocumentsReader(
            tuple(_paths(self.options, storage)),
            _positive(self.options, "targetPartitionBytes", _TARGET_BYTES),
            _positive(self.options, "minPartitions", os.cpu_count() or 1),
            tuple(storage.items()),
        )


def _paths(options: Mapping[str, str], storage: Mapping[str, str]) -> list[str]:
    # Spark passes the argument of load() as `path`, or several of them as `paths`, a JSON array.
    given: list[str] = json.loads(options["paths"]) if "paths" in options else []
    if "path" in options:
        given.append(options["path"])
    if not given:
        raise SparkError('the data source documents requires a directory: spark.read.format("documents").load(folder)')
    paths = []
    for path in given:
        if is_uri(path):
            paths.append(_checked(path, storage))
            continue
        local = from_option(path)
        if not os.path.lexists(local):
            raise SparkError(f"path does not exist: {path}")
        # Relative paths refer to the driver's working directory, which executors do not share.
        paths.append(str(Path(local).absolute()))
    return paths


def _checked(uri: str, storage: Mapping[str, str]) -> str:
    from pyarrow.fs import FileType

    try:
        check_storage(storage, uri)
        found = Place.open(uri, storage).info()
    except (ValueError, OSError) as error:
        raise SparkError(f"the data source documents cannot list {uri}: {error}") from None
    if found.type == FileType.NotFound:
        raise SparkError(f"path does not exist: {uri}")
    return uri


def _positive(options: Mapping[str, str], name: str, default: int) -> int:
    given = options.get(name)
    if given is None:
        return default
    if not given.isdecimal() or int(given) < 1:
        raise SparkError(f"the option {name} of the data source documents must be a positive number, not {given!r}")
    return int(given)


def _cost(file: _File) -> int:
    return file.length + _OPEN_COST


def _files(path: str) -> Iterator[_File]:
    return (_file(*found) for found in list_documents(path))


def _objects(uri: str, storage: Mapping[str, str]) -> Iterator[_File]:
    place = Place.open(uri, storage)
    if not place.is_folder():
        yield _object(place, place.name, place.info())
        return
    for info in place.files(recursive=True):
        found = place.below(info)
        yield _object(found, found.uri[len(place.uri) + 1 :], info)


def _object(place: Place, document: str, info: "FileInfo") -> _File:
    return _File(place.uri, document, info.size or 0, (info.mtime_ns or 0) // 1000)


def _file(document: str, path: str) -> _File:
    try:
        found = Path(path).stat()
    except OSError:
        return _File(to_column(path), document, 0, 0)
    length = found.st_size if stat.S_ISREG(found.st_mode) else 0
    return _File(to_column(path), document, length, found.st_mtime_ns // 1000)
