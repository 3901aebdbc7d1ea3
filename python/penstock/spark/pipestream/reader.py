"""The batch source: the rows of a sink's closed sessions."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.errors import PipeStreamError, SparkError
from penstock.spark._options import Options
from penstock.spark._partitions import own_partition
from penstock.spark.pipestream.source import PipeStreamPartition, Source, read_options, read_sink, weight_of

__all__ = ["PipeStreamReader"]


@dataclass(frozen=True)
class PipeStreamReader(DataSourceReader):
    """Divides the sessions on the driver and reads them on the executors; it holds only options."""

    source: Source

    @classmethod
    def of(cls, given: dict[str, str], schema: StructType) -> "PipeStreamReader":
        """Create the reader from the options. Only the read key's file is opened."""
        options = Options(given, "source")
        wanted = read_options(options, schema)
        sink, _ = read_sink(options)
        options.finish()
        return cls(Source(sink, wanted))

    def partitions(self) -> list[PipeStreamPartition]:
        """Divide the sessions that are closed now into partitions of about equal weight."""
        source, wanted = self.source, self.source.wanted
        names = None if wanted.receipts is None else _named_by(Path(wanted.receipts))
        try:
            found = {session.session: session for session in source.sink.sessions()}
            missing = sorted(session for session in (names or {}) if session not in found)
            if missing:
                raise SparkError(f"receipts name session {missing[0]}, which is not closed in {source.sink!r}")
            chosen = [session for session in found if names is None or session in names]
            weight = sum(weight_of(session) for session in found.values() if session.session in chosen)
            count, size = source.share(weight)
            pieces = [
                piece
                for session in chosen
                for piece in source.pieces(session, max_bytes=size, names=None if names is None else names[session])
            ]
        except PipeStreamError as error:
            raise SparkError(f"{source.sink!r} cannot be read: {error}", error.kind) from error
        return source.partitions(pieces, count)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a partition."""
        own = own_partition(partition, PipeStreamPartition)
        return iter(()) if own is None else own.read()


def _named_by(folder: Path) -> dict[str, set[str]]:
    """Return the names of the rows in receipts, by session: their files, or ``SESSION/SCOPE/ENTITY``."""
    names: dict[str, set[str]] = {}
    for file in sorted(folder.glob("*.json")) if folder.is_dir() else [folder]:
        try:
            receipt = json.loads(file.read_bytes())
            scope, entity = receipt["root"]
            _add(names, {**receipt, "scope": scope, "entity": entity})
            for part in receipt["parts"]:
                _add(names, part)
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise SparkError(f"{file} is not a receipt: {error}", "malformed") from error
    return names


def _add(names: dict[str, set[str]], part: dict[str, Any]) -> None:
    if part["session"] is not None:
        place = f"{part['session']}/{part['scope']}/{part['entity']}"
        names.setdefault(part["session"], set()).add(part["file"] or place)
