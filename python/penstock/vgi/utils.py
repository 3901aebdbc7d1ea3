"""Dataclasses and batches as Arrow IPC: the types of section 4, and what checks what came."""

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
    """Arrow IPC that cannot be read, or a batch whose buffers are not what they say."""

    def __new__(cls, message: str = "") -> Self:
        """Return an error of the kind "malformed"."""
        return super().__new__(cls, message, "malformed")

    def __init__(self, message: str = "") -> None:
        """Make an error that says what cannot be read."""
        super().__init__(message, "malformed")
        self.args = (message,)


class IpcValidation(Enum):
    """How closely batches of a peer are looked at."""

    NONE = "none"
    """Not at all, beyond what the reading itself checks."""
    STANDARD = "standard"
    """Lengths and counts."""
    FULL = "full"
    """Also the data: offsets, UTF-8, indices of dictionaries."""


def validate_batch(batch: pa.RecordBatch, ipc_validation: IpcValidation) -> None:
    """Check a batch; IPCError says what is wrong with it."""
    if ipc_validation is IpcValidation.NONE:
        return
    try:
        batch.validate(full=ipc_validation is IpcValidation.FULL)
    except pa.ArrowInvalid as error:
        raise IPCError(f"the batch is not valid: {error}") from error


class ValidatedReader:
    """An Arrow stream reader that checks every batch before it gives it out."""

    def __init__(self, reader: pa.ipc.RecordBatchStreamReader, ipc_validation: IpcValidation) -> None:
        """Read from ``reader``, and check so closely."""
        self._reader = reader
        self._validation = ipc_validation

    def __enter__(self) -> Self:
        """Give this reader."""
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        """Close what it reads from."""
        self._reader.close()

    @property
    def ipc_validation(self) -> IpcValidation:
        """How closely it looks."""
        return self._validation

    @property
    def schema(self) -> pa.Schema:
        """The schema of the stream."""
        return self._reader.schema

    def read_next_batch(self) -> pa.RecordBatch:
        """Give the next batch; StopIteration at the end."""
        return self.read_next_batch_with_custom_metadata()[0]

    def read_next_batch_with_custom_metadata(self) -> tuple[pa.RecordBatch, pa.KeyValueMetadata | None]:
        """Give the next batch and its metadata; StopIteration at the end."""
        try:
            batch, metadata = self._reader.read_next_batch_with_custom_metadata()
        except (pa.ArrowInvalid, OSError) as error:
            raise IPCError(f"the stream cannot be read: {error}") from error
        validate_batch(batch, self._validation)
        return batch, metadata


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """Give a batch of that schema with no row."""
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def serialize_record_batch(
    destination: io.IOBase, batch: pa.RecordBatch, custom_metadata: pa.KeyValueMetadata | None = None
) -> None:
    """Write a whole IPC stream with that one batch."""
    with pa.ipc.new_stream(destination, batch.schema) as writer:
        writer.write_batch(batch, custom_metadata=custom_metadata)


def deserialize_record_batch(
    data: bytes, ipc_validation: IpcValidation = IpcValidation.FULL
) -> tuple[pa.RecordBatch, pa.KeyValueMetadata | None]:
    """Read the one batch of an IPC stream, and its metadata. Anything else is an IPCError."""
    return _read_single(pa.py_buffer(data), "batch", ipc_validation)


def read_single_record_batch(
    stream: io.IOBase, context: str = "batch", ipc_validation: IpcValidation = IpcValidation.FULL
) -> tuple[pa.RecordBatch, pa.KeyValueMetadata | None]:
    """Read an IPC stream with one batch from a file up to its end; an IPCError begins with ``context``."""
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
    """How a dataclass lies in Arrow: its schema, and the codec of each field that is sent."""

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
    """The schema of the dataclass that is asked, made when it is asked for the first time."""

    def __get__(self, instance: object, owner: type["ArrowSerializableDataclass"]) -> pa.Schema:
        return owner._layout().schema


class ArrowSerializableDataclass:
    """What dataclasses derive from that are parameters, results, headers or states.

    The Arrow schema comes out of the fields' annotations.

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
    """The schema, a column for each field that is not Transient. TypeError for a field that has no Arrow type."""

    @classmethod
    def _layout(cls) -> _Layout:
        layout: _Layout | None = cls.__dict__.get("_arrow_layout")
        if layout is None:
            layout = _Layout(cls)
            cls._arrow_layout = layout  # type: ignore[attr-defined]
        return layout

    @classmethod
    def _to_row(cls, value: Any) -> dict[str, Any]:
        """Give the fields as pyarrow takes them; a mapping in the place of an instance is taken as it is."""
        if isinstance(value, dict):
            return value
        row = {}
        for name, each in cls._layout().columns:
            one = getattr(value, name)
            row[name] = one if one is None or each.to_wire is None else each.to_wire(one)
        return row

    @classmethod
    def _from_row(cls, row: dict[str, Any]) -> Self:
        """Make an instance of what pyarrow gives."""
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
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise TypeError(f"{type(self).__name__} does not fit its Arrow schema: {error}") from error
        if not arrays:
            # A batch without columns would otherwise have no row.
            return pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def serialize(self, dest: io.IOBase) -> None:
        """Write it as an IPC stream with one row."""
        serialize_record_batch(dest, self._to_batch())

    def serialize_to_bytes(self) -> bytes:
        """Give it as an IPC stream with one row."""
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
        """Make an instance of a batch with one row. Columns that it has no field for are passed over.

        ValueError where the row is not there, a column is missing that has no default, or a value does not fit.
        """
        validate_batch(batch, ipc_validation)
        if batch.num_rows != 1:
            raise ValueError(f"{cls.__name__} is one row, and the batch has {batch.num_rows}")
        return cls._from_row(batch.to_pylist()[0])

    @classmethod
    def deserialize_from_bytes(cls, data: bytes, ipc_validation: IpcValidation = IpcValidation.FULL) -> Self:
        """Make an instance of an IPC stream with one row; IPCError where it is no such stream."""
        batch, metadata = deserialize_record_batch(data, ipc_validation)
        return cls.deserialize_from_batch(batch, metadata, ipc_validation=IpcValidation.NONE)
