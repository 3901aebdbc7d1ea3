"""The streaming source: the events of a spool in the order in which they were acknowledged.

An offset is a position in the spool and a count of ticks. Neither changes when the query, the source or the receiver
is killed and restarted, so the events between two offsets are always the same.

Spark commits a micro-batch only when it plans the next one. After the last events, a sender with ``ack=commit`` would
therefore wait indefinitely for its acknowledgement, and segments would never be removed. To prevent this, an idle
source advances by one tick, which is an empty batch and commits the one before it. When a query stops, and when it
starts again, the source reads the last commit from the query's log of commits.
"""

import logging
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock.errors import Error, LumberjackError, SparkError
from penstock.lumberjack import Position, Spool, SpoolReader
from penstock.spark._admission import budget, default_limit, read_limits
from penstock.spark._options import Options
from penstock.spark.lumberjack.checkpoint import committed_offsets
from penstock.spark.lumberjack.listen import Listen
from penstock.spark.lumberjack.source import SPOOL_OPTIONS, Columns, LumberjackPartition, Shares, read_spool

__all__ = ["LumberjackStreamReader", "SpoolOffset"]

_T = TypeVar("_T")
_LOG = logging.getLogger("penstock.spark")


@dataclass(frozen=True)
class SpoolOffset:
    """An offset of the stream."""

    spool: str = ""
    """The ID of the spool; empty for the beginning of any spool."""
    position: Position = field(default_factory=Position)
    """The position of the next event."""
    tick: int = 0
    """How many empty batches an idle source has added."""

    @classmethod
    def of(cls, offset: dict[str, Any]) -> "SpoolOffset":
        """Read an offset that Spark has stored."""
        try:
            position = Position(int(offset["segment"]), int(offset["row"]))
            return cls(str(offset["spool"]), position, int(offset["tick"]))
        except (LookupError, TypeError, ValueError):
            raise SparkError(
                f"the checkpoint belongs to another source: {offset!r} is not an offset of this one"
            ) from None

    def offset(self) -> dict[str, Any]:
        """Return the form that Spark stores."""
        return {"spool": self.spool, "segment": self.position.segment, "row": self.position.row, "tick": self.tick}


@dataclass
class LumberjackStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a spool; with `Listen` it also runs the receiver. Nothing is opened before Spark asks for an offset."""

    spool: SpoolReader | None
    columns: Columns
    shares: Shares
    listen: Listen | None = None
    name: str | None = None
    """The name under which the spool records commits; ``None``: they are not recorded."""
    checkpoint: str | None = None
    max_rows: int | None = None
    max_bytes: int | None = None
    _written: Spool | None = field(default=None, init=False)
    _close: Callable[[], None] | None = field(default=None, init=False)
    _until: Position | None = field(default=None, init=False)
    """The position at which the trigger availableNow stops."""
    _committed: Position = field(default_factory=Position, init=False)

    @classmethod
    def of(cls, given: dict[str, str], schema: StructType) -> "LumberjackStreamReader":
        """Create the reader from the options. Only the read key's file is opened."""
        options = Options(given, "source", "lumberjack")
        listen = Listen.read(options)
        spool = None if listen is not None else read_spool(options)
        name = options.text("reader")
        checkpoint = options.text("checkpointLocation")
        max_rows, max_bytes = read_limits(options)
        columns, shares = Columns.of(schema, options), Shares.read(options)
        options.finish(*SPOOL_OPTIONS)
        if name is None and listen is not None:
            name = "spark"
        if name is not None and spool is not None and spool.address is None:
            raise options.error(
                "reader", "requires the HOST:PORT of a receiver (--read-listen): positions cannot be committed to files"
            )
        return cls(spool, columns, shares, listen, name, checkpoint, max_rows=max_rows, max_bytes=max_bytes)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset of the beginning of any spool."""
        return SpoolOffset().offset()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit set by the options; if both are set, `latestOffset` applies the other one as well."""
        return default_limit(self.max_rows, self.max_bytes)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset up to which the next micro-batch reads."""
        rows, size = budget(limit, self.max_bytes, "lumberjack")
        first = SpoolOffset.of(start)

        def advance() -> dict[str, Any]:
            spool = self._open()
            known = self._known(first, spool)
            end = spool.plan(first.position, self._until, rows=rows, max_bytes=size)[1]
            if end > first.position:
                return replace(known, position=end).offset()
            idle = self.name is not None and first.position > self._committed
            return replace(known, tick=known.tick + 1).offset() if idle else start

        return self._tried(advance)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset of the newest data, for the progress of the query."""

        def report() -> dict[str, Any]:
            spool = self._open()
            return SpoolOffset(spool.id, spool.end(self._committed)).offset()

        return self._tried(report)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Limit the query to the events that are stored now."""
        self._until = self._tried(lambda: self._open().end(self._committed))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[LumberjackPartition]:
        """Divide the events between two offsets into partitions."""
        first, last = SpoolOffset.of(start), SpoolOffset.of(end)

        def divide() -> list[LumberjackPartition]:
            spool = self._open()
            self._known(last, spool)
            if first.position == last.position:
                return []
            tasks = self.shares.divide(spool, first.position, last.position)
            return [LumberjackPartition(spool, pieces, self.columns) for pieces in tasks]

        return self._tried(divide)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the events of a partition, on an executor."""
        if not isinstance(partition, LumberjackPartition):
            raise TypeError(f"not a partition of this source: {partition!r}")
        return partition.read()

    def commit(self, end: dict[str, Any]) -> None:
        """Commit a micro-batch; with ``ack=commit`` its events are acknowledged, and unneeded segments are removed."""
        self._tried(lambda: self._commit(SpoolOffset.of(end).position))

    def stop(self) -> None:
        """Commit the last batch in the query's log of commits, and close the receiver."""
        if self._close is not None:
            try:
                self._commit_log()
            finally:
                close, self._close, self._written, self.spool = self._close, None, None, None
                close()
        elif self.name is not None and self.spool is not None:
            self._commit_log()

    def _open(self) -> SpoolReader:
        if self.spool is None:
            if self.listen is None:
                raise SparkError("the source was stopped")
            self._written, serve = self.listen.open_spool(secrets.token_hex(32))
            self._close = self._written.close
            self._commit_log()
            # Commits are recorded before the receiver starts, so that their events are acknowledged immediately.
            self.spool, self._close = serve()
        return self.spool

    def _known(self, offset: SpoolOffset, spool: SpoolReader) -> SpoolOffset:
        """Check that an offset belongs to this spool; return the offset with the spool's ID."""
        there = spool.id
        if offset.spool not in ("", there):
            raise SparkError(f"the checkpoint has positions of the spool {offset.spool}, but {spool!r} is {there}")
        return replace(offset, spool=there)

    def _commit(self, position: Position) -> None:
        if self.name is None or position <= self._committed:
            return
        spool = self._written if self._written is not None else self._open()
        spool.commit(self.name, position)
        self._committed = position

    def _commit_log(self) -> None:
        """Commit the last batch in the checkpoint's log of commits, if the option checkpointLocation is set."""
        if self.checkpoint is None or self.name is None:
            return
        spool = self._written if self._written is not None else self.spool
        try:
            for offset in committed_offsets(self.checkpoint):
                if spool is not None and offset.get("spool") == spool.id:
                    self._commit(SpoolOffset.of(offset).position)
        except Error:
            raise
        except (OSError, ValueError) as error:
            # Nothing is lost: senders repeat events that are not acknowledged, and the spool drops duplicates.
            _LOG.warning("the checkpoint %s cannot be read: %s", self.checkpoint, error)

    def _tried(self, work: Callable[[], _T]) -> _T:
        try:
            return work()
        except LumberjackError as error:
            raise SparkError(f"the spool cannot be followed: {error}", error.kind) from error
