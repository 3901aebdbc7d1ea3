"""Dataclasses and batches as Arrow IPC (vgi-rpc, section 4), and the validation of received batches."""

import io
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from types import TracebackType
from typing import Annotated, Any, ClassVar, Self, get_args, get_origin, get_type_hints

import pyarrow as pa

from penstock.errors import Error
from penstock.vgi._annotations import ArrowType, Codec, Transient, codec, wire_type

__all__ = [
    "ArrowSerializableDataclass",
    "ArrowType",
    "IPCError",
    "IpcValidation",
    "Transient",
    "ValidatedReader",
    "deserialize_record_batch",
    "empty_batch",
    "read_single_record_batch",
    "serialize_record_batch",
    "validate_batch",
]


class IPCError(Error):
    """Arrow IPC that cannot be read, or a batch with invalid buffers."""

    def __init__(self, message: str = "") -> None:
        """Make an error that says what cannot be read."""
        super().__init__(message, "malformed")
        self.args = (message,)


class IpcValidation(Enum):
    """The level of checks on a peer's batches."""

    NONE = "none"
    """No check beyond those of reading itself."""
    STANDARD = "standard"
    """Check lengths and counts."""
    FULL = "full"
    """Also check the data: offsets, UTF-8, and the indices of dictionaries."""


def validate_batch(batch: pa.RecordBatch, ipc_validation: IpcValidation) -> None:
    """Check a batch; raise IPCError if it is invalid."""
    if ipc_validation is IpcValidation.NONE:
        return
    try:
        batch.validate(full=ipc_validation is IpcValidation.FULL)
    except pa.ArrowInvalid as error:
        raise IPCError(f"the batch is not valid: {error}") from error


class ValidatedReader:
    """An Arrow stream reader that checks every batch before it returns it."""

    def __init__(self, reader: pa.ipc.RecordBatchStreamReader, ipc_validation: IpcValidation) -> None:
        """Read batches from ``reader``, and check each at this level."""
        self._reader = reader
        self._validation = ipc_validation

    def __enter__(self) -> Self:
        """Return this reader."""
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        """Close the underlying reader."""
        self._reader.close()

    @property
    def ipc_validation(self) -> IpcValidation:
        """The level of the checks."""
        return self._validation

    @property
    def schema(self) -> pa.Schema:
        """The schema of the stream."""
        return self._reader.schema

    def read_next_batch(self) -> pa.RecordBatch:
        """Return the next batch; raise StopIteration at the end, and IPCError for an invalid batch or stream."""
        return self.read_next_batch_with_custom_metadata()[0]

    def read_next_batch_with_custom_metadata(self) -> tuple[pa.RecordBatch, pa.KeyValueMetadata | None]:
        """Return the next batch and its metadata; raise StopIteration at the end, and IPCError if one is invalid."""
        try:
            batch, metadata = self._reader.read_next_batch_with_custom_metadata()
        except (pa.ArrowInvalid, OSError) as error:
            raise IPCError(f"the stream cannot be read: {error}") from error
        validate_batch(batch, self._validation)
        return batch, metadata


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with this schema and no rows."""
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def serialize_record_batch(
    destination: io.IOBase, batch: pa.RecordBatch, custom_metadata: pa.KeyValueMetadata | None = None
) -> None:
    """Write a complete IPC stream with this one batch."""
    with pa.ipc.new_stream(destination, batch.schema) as writer:
        writer.write_batch(batch, custom_metadata=custom_metadata)


def deserialize_record_batch(
    data: bytes, ipc_validation: IpcValidation = IpcValidation.FULL
) -> tuple[pa.RecordBatch, pa.KeyValueMetadata | None]:
    """Return the only batch of an IPC stream, and its metadata.

    Raises:
        IPCError: If the bytes are not an IPC stream with exactly one valid batch.
    """
    return _read_single(pa.py_buffer(data), "batch", ipc_validation)


def read_single_record_batch(
    stream: io.IOBase, context: str = "batch", ipc_validation: IpcValidation = IpcValidation.FULL
) -> tuple[pa.RecordBatch, pa.KeyValueMetadata | None]:
    """Read an IPC stream from a file up to its end, and return its only batch and the batch's metadata.

    Args:
        stream: The file.
        context: The beginning of error messages.
        ipc_validation: How thoroughly to check the batch.

    Raises:
        IPCError: If the file does not contain an IPC stream with exactly one valid batch.
    """
    return _read_single(stream, context, ipc_validation)


def _read_single(
    source: Any, context: str, ipc_validation: IpcValidation
) -> tuple[pa.RecordBatch, pa.KeyValueMetadata | None]:
    try:
        reader = pa.ipc.open_stream(source)
        batch, metadata = reader.read_next_batch_with_custom_metadata()
        more = next(iter(reader), None)
    except StopIteration:
        raise IPCError(f"{context}: the stream holds no batch") from None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise IPCError(f"{context}: not an Arrow stream: {error}") from error
    if more is not None:
        raise IPCError(f"{context}: the stream holds more than one batch")
    validate_batch(batch, ipc_validation)
    return batch, metadata


class _Layout:
    """The Arrow layout of a dataclass: its schema, and the codec of each field that is sent."""

    def __init__(self, owner: Any) -> None:
        name: str = owner.__name__
        if not is_dataclass(owner):
            raise TypeError(f"{name} derives from ArrowSerializableDataclass, so it must be a @dataclass")
        hints = get_type_hints(owner, include_extras=True)
        self.columns: list[tuple[str, Codec]] = []
        self.required: set[str] = set()
        arrow = []
        for field in fields(owner):
            annotation = hints[field.name]
            if _is_transient(annotation) or not field.init:
                continue
            try:
                wire = wire_type(annotation, top=False)
            except TypeError as error:
                raise TypeError(f"{name}.{field.name}: {error}") from error
            arrow.append(pa.field(field.name, wire.arrow, nullable=wire.nullable))
            self.columns.append((field.name, codec(annotation, top=False)))
            if field.default is MISSING and field.default_factory is MISSING:
                self.required.add(field.name)
        self.schema = pa.schema(arrow)


def _is_transient(annotation: object) -> bool:
    return get_origin(annotation) is Annotated and any(isinstance(note, Transient) for note in get_args(annotation))


class _ArrowSchema:
    """A descriptor for the Arrow schema of a dataclass, which is made at its first use."""

    def __get__(self, instance: object, owner: type["ArrowSerializableDataclass"]) -> pa.Schema:
        return owner._layout().schema


class ArrowSerializableDataclass:
    """The base class of dataclasses that are parameters, results, headers or states.

    The Arrow schema follows from the annotations of the fields.

    ```python
    >>> from dataclasses import dataclass
    >>> from penstock.vgi import ArrowSerializableDataclass
    >>> @dataclass(frozen=True)
    ... class Point(ArrowSerializableDataclass):
    ...     x: float
    ...     y: float | None = None
    >>> Point.deserialize_from_bytes(Point(1.0).serialize_to_bytes())
    Point(x=1.0, y=None)

    ```
    """

    ARROW_SCHEMA: ClassVar[pa.Schema] = _ArrowSchema()
    """The schema, with a column for each field that is not Transient; raises TypeError if one has no Arrow type."""

    @classmethod
    def _layout(cls) -> _Layout:
        layout: _Layout | None = cls.__dict__.get("_arrow_layout")
        if layout is None:
            layout = _Layout(cls)
            cls._arrow_layout = layout  # type: ignore[attr-defined]
        return layout

    @classmethod
    def _to_row(cls, value: Any) -> dict[str, Any]:
        """Return the fields as values for pyarrow; a dict in place of an instance is returned unchanged."""
        if isinstance(value, dict):
            return value
        row = {}
        for name, each in cls._layout().columns:
            one = getattr(value, name)
            row[name] = one if one is None or each.to_wire is None else each.to_wire(one)
        return row

    @classmethod
    def _from_row(cls, row: dict[str, Any]) -> Self:
        """Make an instance from the values of pyarrow."""
        layout = cls._layout()
        values = {}
        for name, each in layout.columns:
            if name in row:
                one = row[name]
                try:
                    values[name] = one if one is None or each.from_wire is None else each.from_wire(one)
                except (ValueError, KeyError, TypeError) as error:
                    raise ValueError(f"{cls.__name__}.{name}: {error}") from error
            elif name in layout.required:
                raise ValueError(f"{cls.__name__}.{name} is missing")
        return cls(**values)

    def _to_batch(self) -> pa.RecordBatch:
        schema, row = self.ARROW_SCHEMA, self._to_row(self)
        try:
            arrays = [pa.array([row[field.name]], field.type) for field in schema]
        except (pa.ArrowTypeError, OverflowError, ValueError) as error:
            raise TypeError(f"{type(self).__name__} does not match its Arrow schema: {error}") from error
        if not arrays:
            # A batch without columns would otherwise have no row.
            return pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def serialize(self, dest: io.IOBase) -> None:
        """Write the instance as an IPC stream with one row."""
        serialize_record_batch(dest, self._to_batch())

    def serialize_to_bytes(self) -> bytes:
        """Return the instance as an IPC stream with one row."""
        sink = pa.BufferOutputStream()
        serialize_record_batch(sink, self._to_batch())
        data: bytes = sink.getvalue().to_pybytes()
        return data

    @classmethod
    def deserialize_from_batch(
        cls,
        batch: pa.RecordBatch,
        custom_metadata: pa.KeyValueMetadata | None = None,  # noqa: ARG003
        *,
        ipc_validation: IpcValidation = IpcValidation.FULL,
    ) -> Self:
        """Make an instance from a batch with one row. Columns without a field are ignored.

        Args:
            batch: The batch.
            custom_metadata: Ignored.
            ipc_validation: How thoroughly to check the batch first.

        Raises:
            ValueError: If the batch does not have exactly one row, the column of a field without a default is
                missing, or a value does not fit its field.
            IPCError: If the batch is invalid.
        """
        validate_batch(batch, ipc_validation)
        if batch.num_rows != 1:
            raise ValueError(f"{cls.__name__} requires exactly one row, but the batch has {batch.num_rows}")
        return cls._from_row(batch.to_pylist()[0])

    @classmethod
    def deserialize_from_bytes(cls, data: bytes, ipc_validation: IpcValidation = IpcValidation.FULL) -> Self:
        """Make an instance from an IPC stream with one row.

        Args:
            data: The bytes of the stream.
            ipc_validation: How thoroughly to check the batch first.

        Raises:
            IPCError: If the bytes are not an IPC stream with exactly one valid batch.
            ValueError: If the batch does not fit the dataclass, as for ``deserialize_from_batch``.
        """
        batch, metadata = deserialize_record_batch(data, ipc_validation)
        return cls.deserialize_from_batch(batch, metadata, ipc_validation=IpcValidation.NONE)
