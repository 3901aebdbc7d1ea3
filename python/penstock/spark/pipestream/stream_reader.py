"""The streaming source: the sessions of a sink in the order in which they were found closed.

An offset is a position in the sink's journal, a list that only grows: how many sessions were read completely, and how
far the list of the next one was read, in bytes. Neither changes when the query, the source or the server is killed and
restarted, so the rows between two offsets are always the same.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock.errors import PipeStreamError, SparkError
from penstock.pipestream import ClosedSession, Piece, Server, SinkReader
from penstock.spark._admission import budget, default_limit, read_limits
from penstock.spark._options import Options
from penstock.spark.pipestream.listen import Listen
from penstock.spark.pipestream.source import PipeStreamPartition, Source, read_options, read_sink, weight_of

__all__ = ["PipeStreamStreamReader", "Position"]

_T = TypeVar("_T")
_PAGE = 4096


@dataclass(frozen=True)
class Position:
    """An offset of the stream."""

    journal: str = ""
    """The name of the journal; empty for the beginning of any journal."""
    session: int = 0
    """How many sessions were read completely."""
    byte: int = 0
    """How far the list of the next session was read, in bytes."""

    @classmethod
    def of(cls, offset: dict[str, Any]) -> "Position":
        """Read an offset that Spark has stored."""
        try:
            return cls(str(offset["journal"]), int(offset["session"]), int(offset["byte"]))
        except (LookupError, TypeError, ValueError):
            raise SparkError(
                f"the checkpoint belongs to another source: {offset!r} is not an offset of this one"
            ) from None

    def offset(self) -> dict[str, Any]:
        """Return the form that Spark stores."""
        return {"journal": self.journal, "session": self.session, "byte": self.byte}


@dataclass
class PipeStreamStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a sink; with `Listen` it also runs the server. Nothing is opened before Spark asks for an offset."""

    source: Source
    listen: Listen | None = None
    max_rows: int | None = None
    max_bytes: int | None = None
    delete: bool = False
    _server: Server | None = field(default=None, init=False)
    _remote: SinkReader | None = field(default=None, init=False)
    _until: int | None = field(default=None, init=False)
    """The number of sessions in the journal at which the trigger availableNow stops."""
    _collected: int = field(default=0, init=False)

    @classmethod
    def of(cls, given: dict[str, str], schema: StructType) -> "PipeStreamStreamReader":
        """Create the reader from the options. Only the read key's file is opened."""
        options = Options(given, "source")
        wanted = read_options(options, schema)
        if wanted.receipts is not None:
            raise options.error("receipts", "is only for batch reads")
        delete = options.flag("deleteAfterCommit")
        listen = Listen.read(options)
        if listen is not None:
            sink, is_folder = listen.sink, True
        else:
            sink, is_folder = read_sink(options)
        if delete and not is_folder:
            raise options.error(
                "deleteAfterCommit", "requires a sink in a directory or object store: clients of a server cannot delete"
            )
        max_rows, max_bytes = read_limits(options)
        options.finish()
        return cls(Source(sink, wanted), listen, max_rows=max_rows, max_bytes=max_bytes, delete=delete)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset of the beginning of any journal."""
        return Position().offset()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit set by the options; if both are set, `latestOffset` applies the other one as well."""
        return default_limit(self.max_rows, self.max_bytes)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset up to which the next micro-batch reads."""
        rows, size = budget(limit, self.max_bytes, "pipestream")
        return self._tried(lambda: self._advance(Position.of(start), rows, size).offset())

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset of the newest data, for the progress of the query."""

        def report() -> dict[str, Any]:
            journal, length, _ = self._open().follow(0, 0)
            return Position(journal, length).offset()

        return self._tried(report)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Limit the query to the sessions that are in the journal now."""
        self._until = self._tried(lambda: self._open().follow(0, 0)[1])

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[PipeStreamPartition]:
        """Divide the rows between two offsets into partitions."""
        first, last = Position.of(start), Position.of(end)

        def divide() -> list[PipeStreamPartition]:
            self._open()
            if (first.session, first.byte) == (last.session, last.byte):
                return []
            between = list(self._sessions(first, last.session + (last.byte > 0)))
            count, size = self.source.share(sum(weight_of(session) for _, session in between))
            pieces = [
                piece for position, found in between for piece in self._pieces(position, found, first, last, size)
            ]
            return self.source.partitions(pieces, count, self._remote)

        return self._tried(divide)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a partition, on an executor."""
        if not isinstance(partition, PipeStreamPartition):
            raise TypeError(f"not a partition of this source: {partition!r}")
        return partition.read()

    def commit(self, end: dict[str, Any]) -> None:
        """Remove sessions that were read completely if ``delete`` is set; otherwise do nothing."""
        if not self.delete:
            return
        last = Position.of(end)

        def collect() -> None:
            for _, session in self._sessions(replace(last, session=self._collected), last.session):
                self.source.sink.remove(session.session)
            self._collected = last.session

        self._tried(collect)

    def stop(self) -> None:
        """Close the server, if there is one."""
        if self._server is not None:
            self._server.close(0)
            self._server = None

    def _open(self) -> SinkReader:
        if self.listen is not None and self._server is None:
            self._server, self._remote = self.listen.start()
        return self.source.sink

    def _sessions(self, first: Position, end: int) -> Iterator[tuple[int, ClosedSession]]:
        """Yield the sessions of the journal from a position up to, but not including, ``end``, page by page."""
        at = first.session
        while at < end:
            journal, length, sessions = self._open().follow(at, min(_PAGE, end - at))
            if first.journal not in ("", journal):
                raise SparkError(
                    f"the sink {self.source.sink!r} has the journal {journal}, but the checkpoint has positions of "
                    f"{first.journal}: its file closed.jsonl is gone, or this is another sink"
                )
            if not sessions:
                raise SparkError(f"the checkpoint is {end - length} sessions ahead of the sink {self.source.sink!r}")
            yield from enumerate(sessions, at)
            at += len(sessions)

    def _advance(self, start: Position, rows: int, size: int) -> Position:
        journal, length, _ = self._open().follow(0, 0)
        if self._until is not None:
            length = max(start.session, min(length, self._until))
        at = replace(start, journal=start.journal or journal)
        if start.byte:
            length = max(length, start.session + 1)
        taken = False
        for position, session in self._sessions(start, length):
            whole = position != start.session or start.byte == 0
            if whole and session.rows <= rows and session.bytes <= size:
                rows, size, taken = rows - session.rows, size - session.bytes, taken or session.rows > 0
                at = replace(at, session=position + 1, byte=0)
                continue
            if taken and (rows <= 0 or size <= 0):
                break
            begin = 0 if whole else start.byte
            pieces = self.source.sink.plan(session.session, start=begin, max_bytes=max(size, 1), rows=max(rows, 1))
            piece = next(pieces, None)
            if piece is not None and taken and piece.bytes > size:
                break
            if piece is None or next(pieces, None) is None:
                # The rest of the session fits into this micro-batch.
                at = replace(at, session=position + 1, byte=0)
                if piece is None:
                    continue
                rows, size, taken = rows - piece.rows, size - piece.bytes, True
                continue
            at = replace(at, session=position, byte=piece.end)
            break
        return at

    def _pieces(
        self, position: int, session: ClosedSession, first: Position, last: Position, size: int
    ) -> Iterator[Piece]:
        start = first.byte if position == first.session else 0
        for piece in self.source.pieces(session.session, start=start, max_bytes=size):
            if position < last.session or piece.end <= last.byte:
                yield piece
            elif piece.start < last.byte:
                yield replace(piece, end=last.byte)

    def _tried(self, work: Callable[[], _T]) -> _T:
        try:
            return work()
        except PipeStreamError as error:
            raise SparkError(f"{self.source.sink!r} cannot be followed: {error}", error.kind) from error
