"""Batches with their metadata, and the output of a stream's step."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.vgi.log import Level, Message
from penstock.vgi.metadata import SERVER_ID_KEY, encode_metadata, merge_metadata
from penstock.vgi.utils import empty_batch

__all__ = ["AnnotatedBatch", "OutputCollector", "fit"]


@dataclass(frozen=True)
class AnnotatedBatch:
    """A batch with its custom metadata.

    ```python
    >>> from penstock.vgi import AnnotatedBatch
    >>> AnnotatedBatch.from_pydict({"value": [1.0, 2.0]}).batch.num_rows
    2

    ```
    """

    batch: pa.RecordBatch
    """The batch. A batch from shared memory may be a view, whose region is freed with the last array of the batch."""
    custom_metadata: pa.KeyValueMetadata | None = None
    """The metadata of the batch, without the keys of the protocol itself."""
    _release_fn: Callable[[], None] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def from_pydict(cls, data: dict[str, Any], schema: pa.Schema | None = None) -> "AnnotatedBatch":
        """Create a batch from a mapping of column names to values, without metadata."""
        return cls(pa.RecordBatch.from_pydict(data, schema=schema))

    def release(self) -> None:
        """Signal that the batch is no longer needed. Arrays that are still referenced stay valid."""
        if self._release_fn is not None:
            self._release_fn()


def fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with exactly this schema, reordered and cast; raise TypeError if that is not safe."""
    if batch.schema.equals(schema):
        return batch
    try:
        if sorted(batch.schema.names) == sorted(schema.names):
            arrays = [batch.column(name).cast(schema.field(name).type) for name in schema.names]
            return pa.RecordBatch.from_arrays(arrays, schema=schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    raise TypeError(f"the batch does not fit the stream's schema: expected {_line(schema)}, got {_line(batch.schema)}")


def _line(schema: pa.Schema) -> str:
    return ", ".join(f"{each.name}: {each.type}" for each in schema) or "no columns"


class OutputCollector:
    """A collector of the output of a stream's step: at most one batch, and log messages for the caller.

    ```python
    >>> import pyarrow as pa
    >>> from penstock.vgi import OutputCollector
    >>> out = OutputCollector(pa.schema([("value", pa.int64())]))
    >>> out.emit_pydict({"value": [1, 2]})
    >>> out.data_batch.batch.num_rows
    2

    ```
    """

    __slots__ = ("_data", "_entries", "_finished", "_prior", "_producer", "_schema", "_server_id")

    def __init__(
        self,
        output_schema: pa.Schema,
        *,
        prior_data_bytes: int = 0,
        server_id: str | None = None,
        producer_mode: bool = True,
    ) -> None:
        """Begin a step; servers do this for each step.

        Args:
            output_schema: The schema of the stream's output batches.
            prior_data_bytes: The bytes of earlier batches in the same answer.
            server_id: The ID of the server, for the metadata of log messages.
            producer_mode: Whether the step may end the stream with ``finish``.
        """
        self._schema = output_schema
        self._prior = prior_data_bytes
        self._server_id = server_id
        self._producer = producer_mode
        self._entries: list[Message | AnnotatedBatch] = []
        self._data: int | None = None
        self._finished = False

    @property
    def output_schema(self) -> pa.Schema:
        """The schema of the stream's output batches."""
        return self._schema

    @property
    def finished(self) -> bool:
        """Whether the stream ends with this step."""
        return self._finished

    @property
    def entries(self) -> Sequence[Message | AnnotatedBatch]:
        """The log messages and the batch, in the order of their emission."""
        return self._entries

    @property
    def batches(self) -> list[AnnotatedBatch]:
        """The batches for the caller, in the order of their emission; a log message is a batch without rows."""
        return [self._log_batch(entry) if isinstance(entry, Message) else entry for entry in self._entries]

    def _log_batch(self, message: Message) -> AnnotatedBatch:
        given = None if self._server_id is None else {SERVER_ID_KEY.decode(): self._server_id}
        return AnnotatedBatch(empty_batch(self._schema), encode_metadata(message.add_to_metadata(given)))

    @property
    def data_batch(self) -> AnnotatedBatch:
        """The batch of this step; raises RuntimeError if none was emitted."""
        if self._data is None:
            raise RuntimeError("no data batch was emitted")
        entry = self._entries[self._data]
        assert isinstance(entry, AnnotatedBatch)  # noqa: S101 -- emit() put it there
        return entry

    @property
    def total_data_bytes(self) -> int:
        """The bytes of all batches in the current answer so far, earlier steps included."""
        own = 0 if self._data is None else self.data_batch.batch.get_total_buffer_size()
        return self._prior + int(own)

    def emit(self, batch: pa.RecordBatch, metadata: Mapping[str, str] | None = None) -> None:
        """Emit the batch of this step.

        Args:
            batch: The batch. Its columns are reordered and safely cast to the stream's schema if need be.
            metadata: Custom metadata for the batch.

        Raises:
            RuntimeError: If this step has already emitted a batch.
            TypeError: If the batch does not fit the stream's schema.
        """
        if self._data is not None:
            raise RuntimeError("only one data batch may be emitted in a step")
        batch = fit(batch, self._schema)
        self._data = len(self._entries)
        self._entries.append(AnnotatedBatch(batch, encode_metadata(dict(metadata)) if metadata else None))

    def emit_arrays(self, arrays: "Sequence[pa.Array[Any]]", metadata: dict[str, str] | None = None) -> None:
        """Emit the batch of this step from arrays in the order of the schema; see ``emit``."""
        self.emit(pa.RecordBatch.from_arrays(list(arrays), schema=self._schema), metadata)

    def emit_pydict(self, data: dict[str, Any], metadata: dict[str, str] | None = None) -> None:
        """Emit the batch of this step from a mapping of column names to values; see ``emit``."""
        self.emit(pa.RecordBatch.from_pydict(data, schema=self._schema), metadata)

    def merge_data_metadata(self, metadata: pa.KeyValueMetadata) -> None:
        """Add metadata to the batch of this step, replacing existing keys; raise RuntimeError if there is no batch."""
        given = self.data_batch
        assert self._data is not None  # noqa: S101 -- otherwise data_batch raised
        self._entries[self._data] = AnnotatedBatch(given.batch, merge_metadata(given.custom_metadata, metadata))

    def emit_client_log_message(self, msg: Message) -> None:
        """Send a log message to the caller; it precedes the batch unless that was already emitted."""
        self._entries.append(msg)

    def client_log(self, level: Level, message: str, **extra: str) -> None:
        """Send a log message to the caller; it precedes the batch unless that was already emitted.

        Args:
            level: The level; EXCEPTION raises an RpcError at the caller.
            message: The text.
            extra: Further fields by name.
        """
        self.emit_client_log_message(Message(level, message, **extra))

    def finish(self) -> None:
        """End the stream with this step; raise RuntimeError in an exchange, which only the caller can end."""
        if not self._producer:
            raise RuntimeError(
                "finish() is not allowed in an exchange: each step emits exactly one batch, and the caller ends it"
            )
        self._finished = True

    def validate(self) -> None:
        """Raise RuntimeError unless a batch was emitted or the stream was finished."""
        if self._data is None and not self._finished:
            raise RuntimeError("no data batch was emitted")
