"""Shared by batch and streaming readers of a sink: options, columns, partitions of about equal weight."""

import heapq
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from penstock._places import is_uri
from penstock.errors import PipeStreamError, SparkError
from penstock.pipestream import ROW_SCHEMA, ClosedSession, Piece, SinkReader
from penstock.spark._batches import resize
from penstock.spark._options import Options
from penstock.spark._paths import from_option
from penstock.spark.pipestream.peer import read_peer

__all__ = ["ROW_COLUMNS", "PipeStreamPartition", "Source", "Wanted", "read_options", "read_sink", "weight_of"]

ROW_COLUMNS: StructType = from_arrow_schema(ROW_SCHEMA)
"""The columns of the source, which has a row for each entity of a sink."""

_MAX_CONTENT = (1 << 31) - (1 << 16)
_TARGET_BYTES = 64 << 20
# The cost of a row without its content, in bytes, and the smallest useful size of a piece.
_ROW_COST = 4 << 10
_LEAST_PIECE = 1 << 20
# A little more than the target size of batches, so that a batch is not combined with the next one.
_BATCH_BYTES = 5 << 20


@dataclass(frozen=True)
class Wanted:
    """The selected rows and columns, and the size of partitions."""

    columns: tuple[str, ...]
    content: bool
    max_content: int
    target_bytes: int
    min_partitions: int
    sessions: frozenset[str] | None = None
    documents: frozenset[str] | None = None
    receipts: str | None = None


@dataclass(frozen=True)
class PipeStreamPartition(InputPartition):
    """The input of one task: pieces of closed sessions, and the sink to read them from."""

    sink: SinkReader
    pieces: tuple[Piece, ...]
    wanted: Wanted

    def read(self) -> Iterator[pa.RecordBatch]:
        """Return the rows; every call, on any machine, returns the same ones."""
        wanted, columns = self.wanted, list(self.wanted.columns)
        batches = self.sink.read(
            self.pieces, content=wanted.content, max_content=wanted.max_content, batch_bytes=_BATCH_BYTES
        )
        try:
            if columns == ROW_SCHEMA.names:
                yield from resize(batches)
            else:
                yield from resize(batch.select(columns) for batch in batches)
        except PipeStreamError as error:
            raise SparkError(f"{self.sink!r} cannot be read: {error}", error.kind) from error


@dataclass(frozen=True)
class Source:
    """A sink and the selection of its rows."""

    sink: SinkReader
    wanted: Wanted

    def pieces(
        self, session: str, *, max_bytes: int, start: int = 0, names: Collection[str] | None = None
    ) -> Iterator[Piece]:
        """Divide the selected rows of a session into pieces."""
        if self.wanted.sessions is not None and session not in self.wanted.sessions:
            return iter(())
        return self.sink.plan(session, start=start, max_bytes=max_bytes, documents=self.wanted.documents, names=names)

    def share(self, weight: int) -> tuple[int, int]:
        """Return the number of partitions for a weight, and the size of pieces that fill them evenly."""
        count = max(self.wanted.min_partitions, -(-weight // self.wanted.target_bytes))
        return count, max(_LEAST_PIECE, weight // (4 * count))

    def partitions(
        self, pieces: Iterable[Piece], count: int, sink: SinkReader | None = None
    ) -> list[PipeStreamPartition]:
        """Spread pieces over partitions, heaviest first, and join adjacent pieces of a partition."""
        pieces = sorted(pieces, key=weight_of, reverse=True)
        count = min(count, len(pieces))
        filled: list[list[Piece]] = [[] for _ in range(count)]
        weights = [(0, index) for index in range(count)]
        for piece in pieces:
            weight, index = weights[0]
            filled[index].append(piece)
            heapq.heapreplace(weights, (weight + weight_of(piece), index))
        return [PipeStreamPartition(sink or self.sink, tuple(_joined(part)), self.wanted) for part in filled]


def weight_of(piece: Piece | ClosedSession) -> int:
    """Return the weight of a piece or a session in bytes."""
    return piece.bytes + piece.rows * _ROW_COST


def _joined(pieces: list[Piece]) -> Iterator[Piece]:
    last: Piece | None = None
    for piece in sorted(pieces, key=lambda piece: (piece.session, piece.start)):
        if last is not None and (last.session, last.end) == (piece.session, piece.start):
            last = replace(last, end=piece.end, rows=last.rows + piece.rows, bytes=last.bytes + piece.bytes)
            continue
        if last is not None:
            yield last
        last = piece
    if last is not None:
        yield last


def read_options(options: Options, schema: StructType) -> Wanted:
    """Read the options that select rows and columns."""
    columns = tuple(schema.fieldNames())
    strange = [field.name for field in schema if field not in ROW_COLUMNS.fields]
    if strange or len(set(columns)) != len(columns):
        known = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in ROW_COLUMNS)
        problem = f"unknown column {', '.join(map(repr, strange))}" if strange else "duplicate column names"
        raise SparkError(f"{problem} in the schema of the pipestream source; valid columns: {known}")
    receipts = options.file("receipts")
    if receipts is not None and not os.path.lexists(receipts):
        raise options.error("receipts", f"is a path that does not exist: {receipts}")
    content = options.text("content") is None or options.flag("content")
    most = options.positive("max_content", _MAX_CONTENT)
    if most > _MAX_CONTENT:
        raise options.error(
            "max_content", f"must be at most {_MAX_CONTENT}, because values in Spark are limited to 2 GiB"
        )
    return Wanted(
        columns,
        content=content and "content" in columns,
        max_content=most,
        target_bytes=options.positive("targetPartitionBytes", _TARGET_BYTES),
        min_partitions=options.positive("minPartitions", os.cpu_count() or 1),
        sessions=_names(options, "session"),
        documents=_names(options, "document"),
        receipts=receipts,
    )


def _names(options: Options, name: str) -> frozenset[str] | None:
    """Read one name, or a JSON array of them."""
    given = options.text(name)
    if given is None:
        return None
    if not given.startswith("["):
        return frozenset([given])
    try:
        names = json.loads(given)
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise options.error(name, f"must be a name or a JSON array of names, not {given!r}")
    return frozenset(names)


def read_sink(options: Options) -> tuple[SinkReader, bool]:
    """Return a reader of the sink, and whether its sessions can be deleted: only in a folder or an object store."""
    target = options.target()
    if "/" not in target and re.search(r":[0-9]+$", target):
        peer = read_peer(options)
        return peer.reader(options.read_key("reading the sink of a server")), False
    if is_uri(target):
        return SinkReader(target, storage=options.storage(target)), True
    folder = str(Path(from_option(target)).absolute())
    if not Path(folder).is_dir():
        raise SparkError(f"the pipestream source cannot read {target}: it is neither HOST:PORT nor a directory")
    return SinkReader(folder), True
