"""Shared by batch and streaming readers of a spool: options, columns, partitions of about equal weight."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from penstock._addresses import check_address, fingerprint_digits
from penstock._places import is_uri
from penstock.errors import LumberjackError, SparkError
from penstock.lumberjack import EVENT_SCHEMA, Position, SpoolPiece, SpoolReader
from penstock.spark._batches import resize
from penstock.spark._options import STORAGE, Options
from penstock.spark._paths import from_option

__all__ = ["EVENT_COLUMNS", "SPOOL_OPTIONS", "Columns", "LumberjackPartition", "Shares", "read_spool"]

EVENT_COLUMNS: StructType = from_arrow_schema(EVENT_SCHEMA)
"""The columns of an event as it was received."""

SPOOL_OPTIONS = ("address", "path", "fingerprint", "ca", "system_ca", "read_key_file", STORAGE)
"""Options that name the spool; which of them apply depends on where it is."""

_TARGET_BYTES = 64 << 20
_LEAST_PIECE = 1 << 20


@dataclass(frozen=True)
class Columns:
    """The columns to return: some of those of an event as it was received, or fields of events."""

    names: tuple[str, ...] | None
    """The columns of received events; ``None`` for all of them."""
    typed: pa.Schema | None = None
    """The fields of events, if those are returned instead."""
    skip_damaged: bool = False
    """Whether events that were lost to damage on disk are omitted; otherwise they are an error."""

    @classmethod
    def of(cls, schema: StructType, options: Options) -> "Columns":
        """Read a schema, which has either only columns of received events or fields, and ``skipDamaged``.

        Raises:
            SparkError: A column is named twice.
        """
        names, skip = tuple(schema.fieldNames()), options.flag("skipDamaged", default=False)
        if len(set(names)) != len(names):
            raise SparkError("duplicate column names in the schema")
        if all(name in EVENT_COLUMNS.names and schema[name].dataType == EVENT_COLUMNS[name].dataType for name in names):
            return cls(None if list(names) == EVENT_COLUMNS.names else names, skip_damaged=skip)
        return cls(None, to_arrow_schema(schema, timezone="UTC"), skip)

    def read(self, spool: SpoolReader, pieces: tuple[SpoolPiece, ...]) -> Iterator[pa.RecordBatch]:
        """Return the events of these pieces."""
        batches = spool.read(pieces, schema=self.typed, skip_damaged=self.skip_damaged)
        return batches if self.names is None else (batch.select(list(self.names)) for batch in batches)


@dataclass(frozen=True)
class LumberjackPartition(InputPartition):
    """The input of one task: pieces of segments, and the spool to read them from."""

    spool: SpoolReader
    pieces: tuple[SpoolPiece, ...]
    columns: Columns

    def read(self) -> Iterator[pa.RecordBatch]:
        """Return the events; every call, on any machine, returns the same ones."""
        try:
            yield from resize(self.columns.read(self.spool, self.pieces))
        except LumberjackError as error:
            raise SparkError(f"{self.spool!r} cannot be read: {error}", error.kind) from error


@dataclass(frozen=True)
class Shares:
    """The size and number of partitions into which events are divided."""

    target_bytes: int = _TARGET_BYTES
    min_partitions: int = 1

    @classmethod
    def read(cls, options: Options) -> "Shares":
        """Read ``targetPartitionBytes`` and ``minPartitions``."""
        return cls(
            options.positive("targetPartitionBytes", _TARGET_BYTES),
            options.positive("minPartitions", os.cpu_count() or 1),
        )

    def divide(self, spool: SpoolReader, start: Position, until: Position | None) -> list[tuple[SpoolPiece, ...]]:
        """Divide the events between two positions into the pieces of each task."""
        size = sum(piece.bytes for piece in spool.plan(start, until)[0])
        most = max(self.min_partitions, -(-size // self.target_bytes))
        share = max(_LEAST_PIECE, -(-size // most))
        tasks: list[tuple[SpoolPiece, ...]] = []
        for piece in spool.plan(start, until, piece=share)[0]:
            if tasks and sum(each.bytes for each in tasks[-1]) + piece.bytes <= share:
                tasks[-1] += (piece,)
            else:
                tasks.append((piece,))
        return tasks


def read_spool(options: Options) -> SpoolReader:
    """Return a reader of the spool that the options name: a folder, a URI, or ``HOST:PORT`` of its receiver."""
    target = options.target()
    if is_uri(target):
        return SpoolReader(target, storage=options.storage(target))
    if "/" in target or not re.search(r":[0-9]+$", target):
        folder = Path(from_option(target)).absolute()
        if not folder.is_dir():
            raise SparkError(f"the lumberjack source cannot read {target}: it is neither HOST:PORT nor a directory")
        return SpoolReader(folder)
    try:
        check_address(target)
    except ValueError as error:
        raise SparkError(f"the address of the lumberjack source {error}") from None
    fingerprint = options.checked("fingerprint", fingerprint_digits)
    ca, system_ca = options.file("ca"), options.flag("system_ca")
    if (fingerprint is not None) + (ca is not None) + system_ca != 1:
        raise SparkError("set exactly one of the options fingerprint, ca and system_ca, to verify the receiver")
    return SpoolReader.connect(
        target,
        read_key=options.read_key("reading the spool of a receiver"),
        fingerprint=fingerprint,
        ca=ca,
        system_ca=system_ca,
    )
