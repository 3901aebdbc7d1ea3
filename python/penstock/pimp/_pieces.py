"""The conversion of data that can be sent (files, iterables, Arrow batches) to bytes and strings."""

import base64
import datetime
import decimal
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

__all__ = ["TYPES", "ArrowFormat", "Pieces", "json_lines"]

ArrowFormat = Literal["ipc", "jsonl"]
"""The format of batches: an Arrow IPC stream, or a line of JSON for each row."""

_PART = 1 << 20
TYPES = {"ipc": "application/vnd.apache.arrow.stream", "jsonl": "application/x-ndjson"}
"""The MIME types of payloads with batches."""


def _is_arrow(data: object) -> bool:
    """Return whether an object has an Arrow interface for batches."""
    return hasattr(data, "__arrow_c_array__") or hasattr(data, "__arrow_c_stream__")


class Pieces:
    """A converter of data to bytes and strings, which keeps the state of an IPC stream between batches."""

    def __init__(self, arrow: ArrowFormat) -> None:
        """Make a converter for a format of batches."""
        if arrow not in TYPES:
            raise ValueError(f'arrow must be "ipc" or "jsonl", not {arrow!r}')
        self._arrow: ArrowFormat = arrow
        self.content_type: str | None = None
        """The MIME type of the payload, if it has batches."""
        self._out: list[bytes] = []
        self._writer: pa.RecordBatchStreamWriter | None = None

    def of(self, data: object) -> Iterator[bytes | str]:
        """Yield the data in pieces."""
        if isinstance(data, bytes | str):
            yield data
        elif isinstance(data, bytearray | memoryview):
            yield bytes(data)
        elif isinstance(data, Path):
            with data.open("rb") as file:
                yield from _parts(file.read)
        elif _is_arrow(data):
            yield from self._batches(data)
        elif callable(read := getattr(data, "read1", None) or getattr(data, "read", None)):
            # `read1` returns the available bytes of a pipe; `read` would wait until the part is full.
            yield from _parts(read)
        elif isinstance(data, Iterable) and not isinstance(data, Mapping):
            for item in data:
                yield from self.of(item)
        else:
            raise TypeError(
                f"data must be bytes, str, a path, a file, Arrow batches or an iterable of these, not {type(data)}"
            )

    def _batches(self, data: Any) -> Iterator[bytes | str]:
        one = hasattr(data, "__arrow_c_array__")
        reader = pa.table(pa.record_batch(data)).to_reader() if one else pa.RecordBatchReader.from_stream(data)
        self.content_type = TYPES[self._arrow]
        if self._arrow == "jsonl":
            for batch in reader:
                yield from json_lines(batch)
            return
        if self._writer is None:
            # Yielded at once, because data without rows still has a schema.
            self._writer = pa.ipc.new_stream(_Sink(self._out), reader.schema)
            yield from self._taken()
        for batch in reader:
            self._writer.write_batch(batch)
            yield from self._taken()

    def end(self) -> Iterator[bytes]:
        """Yield the end of an IPC stream, if one was begun."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            yield from self._taken()

    def _taken(self) -> Iterator[bytes]:
        # Joined, because a batch comes as many small pieces.
        taken = b"".join(self._out)
        self._out.clear()
        if taken:
            yield taken


class _Sink:
    """The file to which pyarrow writes an IPC stream."""

    closed = False

    def __init__(self, out: list[bytes]) -> None:
        self._out = out

    def write(self, data: Any) -> int:
        self._out.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""

    def close(self) -> None:
        self.closed = True

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


def _parts(read: Callable[[int], bytes | str]) -> Iterator[bytes | str]:
    while part := read(_PART):
        yield part


def json_lines(batch: pa.RecordBatch, rows: int = 1_024) -> Iterator[str]:
    """Yield the rows as lines of JSON, many at a time; bytes as Base64, times as ISO 8601, NaN and infinity as null."""
    names = batch.schema.names
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"duplicate columns in a line of JSON: {', '.join(sorted(twice))}")
    for start in range(0, batch.num_rows, rows):
        part = batch.slice(start, rows).to_pylist()
        yield "".join(f"{json.dumps(_plain(row), ensure_ascii=False, separators=(',', ':'))}\n" for row in part)


def _plain(value: object) -> object:
    """Convert a value to one that JSON can represent."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, decimal.Decimal):
        return str(value)
    return str(value)
