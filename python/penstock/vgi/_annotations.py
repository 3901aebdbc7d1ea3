"""The Arrow types of Python annotations, and the conversion of their values (vgi-rpc, section 4).

At the top level, as a parameter or a result, a dataclass is an Arrow IPC stream of its own in a binary column; inside
another type it is a struct.
"""

import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Annotated, Any, NewType, Union, get_args, get_origin

import pyarrow as pa

__all__ = ["ArrowType", "Codec", "Transient", "WireType", "codec", "is_optional", "unwrap", "wire_type"]


@dataclass(frozen=True)
class ArrowType:
    """The Arrow type of an annotation, in place of the default one: ``Annotated[T, ArrowType(...)]``.

    ```python
    >>> from typing import Annotated
    >>> import pyarrow as pa
    >>> from penstock.vgi import ArrowType
    >>> Annotated[int, ArrowType(pa.int32())].__metadata__[0].arrow_type
    DataType(int32)

    ```
    """

    arrow_type: pa.DataType
    """The type on the wire."""


@dataclass(frozen=True)
class Transient:
    """A mark for a dataclass field that is never sent; the other side uses the field's default.

    ```python
    >>> from dataclasses import dataclass
    >>> from typing import Annotated
    >>> from penstock.vgi import ArrowSerializableDataclass, Transient
    >>> @dataclass
    ... class Progress(ArrowSerializableDataclass):
    ...     done: int
    ...     cache: Annotated[dict | None, Transient()] = None
    >>> Progress.ARROW_SCHEMA.names
    ['done']

    ```
    """


@dataclass(frozen=True)
class WireType:
    """An Arrow type, and whether the field is declared nullable."""

    arrow: pa.DataType
    nullable: bool


@dataclass(frozen=True)
class Codec:
    """The conversion of values for pyarrow and back.

    A direction that is None needs no conversion. Callers skip the value None, which always stays None.
    """

    to_wire: Callable[[Any], Any] | None = None
    from_wire: Callable[[Any], Any] | None = None


_PLAIN = Codec()

_SCALARS: Mapping[object, pa.DataType] = {
    str: pa.utf8(),
    bytes: pa.binary(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    pa.RecordBatch: pa.binary(),
    pa.Schema: pa.binary(),
}


def unwrap(annotation: object) -> tuple[object, tuple[object, ...]]:
    """Remove ``Annotated`` and ``NewType``, and return the type and its annotated metadata."""
    notes: tuple[object, ...] = ()
    while True:
        if get_origin(annotation) is Annotated:
            annotation, *more = get_args(annotation)
            notes += tuple(more)
        elif isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        else:
            return annotation, notes


def optional_of(annotation: object) -> tuple[object, bool]:
    """Return the type without ``| None``, and whether it had that."""
    if get_origin(annotation) in (Union, types.UnionType):
        arms = get_args(annotation)
        others = [arm for arm in arms if arm is not type(None)]
        if len(others) == 1 and len(others) < len(arms):
            return others[0], True
    return annotation, False


def is_optional(annotation: object) -> bool:
    """Return whether None is a value of the annotation."""
    plain, _ = unwrap(annotation)
    return optional_of(plain)[1] or plain is type(None)


def is_dataclass_type(annotation: object) -> bool:
    """Return whether the annotation is a dataclass with an Arrow schema."""
    return isinstance(annotation, type) and hasattr(annotation, "ARROW_SCHEMA")


def wire_type(annotation: object, *, top: bool) -> WireType:
    """Return the Arrow type of an annotation; raise TypeError if it has none."""
    plain, notes = unwrap(annotation)
    for note in notes:
        if isinstance(note, ArrowType):
            # Declared non-null even if None is a value of the type, as in vgi_rpc.
            return WireType(note.arrow_type, nullable=False)
    plain, nullable = optional_of(plain)
    if nullable:
        return WireType(wire_type(plain, top=top).arrow, nullable=True)
    return WireType(_arrow_type(plain, top=top), nullable=False)


def _arrow_type(plain: object, *, top: bool) -> pa.DataType:
    if isinstance(plain, type) and issubclass(plain, Enum):
        return pa.dictionary(pa.int16(), pa.utf8())
    if is_dataclass_type(plain):
        schema: pa.Schema = plain.ARROW_SCHEMA  # type: ignore[attr-defined]
        return pa.binary() if top else pa.struct(list(schema))
    origin, arguments = get_origin(plain), get_args(plain)
    if origin in (list, set, frozenset) and len(arguments) == 1:
        return pa.list_(wire_type(arguments[0], top=False).arrow)
    if origin is dict and len(arguments) == 2:
        return pa.map_(wire_type(arguments[0], top=False).arrow, wire_type(arguments[1], top=False).arrow)
    # Not a dict lookup, because an annotation may be unhashable.
    for scalar, arrow in _SCALARS.items():
        if plain is scalar:
            return arrow
    if plain is tuple or origin is tuple:
        raise TypeError(
            f"{plain} has no Arrow type: Arrow has no tuples; use list[T], or a dataclass that derives from "
            "ArrowSerializableDataclass"
        )
    raise TypeError(f"{plain} has no Arrow type; set one with Annotated[T, ArrowType(...)]")


def codec(annotation: object, *, top: bool) -> Codec:
    """Return the codec for values of an annotation."""
    try:
        return _cached_codec(annotation, top)
    except TypeError:  # The annotation is unhashable.
        return _make_codec(annotation, top)


@lru_cache(maxsize=1024)
def _cached_codec(annotation: object, top: bool) -> Codec:
    return _make_codec(annotation, top)


def _make_codec(annotation: object, top: bool) -> Codec:
    plain = optional_of(unwrap(annotation)[0])[0]
    # NewType and Annotated may also occur inside ``| None``.
    plain = unwrap(plain)[0]
    if isinstance(plain, type) and issubclass(plain, Enum):
        return _enum_codec(plain)
    if is_dataclass_type(plain):
        return _dataclass_codec(plain, top)
    if plain is pa.RecordBatch:
        return Codec(_batch_to_bytes, _batch_from_bytes)
    if plain is pa.Schema:
        return Codec(_schema_to_bytes, _schema_from_bytes)
    origin, arguments = get_origin(plain), get_args(plain)
    if origin in (list, set, frozenset) and len(arguments) == 1:
        return _sequence_codec(origin, codec(arguments[0], top=False))
    if origin is dict and len(arguments) == 2:
        return _map_codec(codec(arguments[0], top=False), codec(arguments[1], top=False))
    return _PLAIN


def _enum_codec(kind: type[Enum]) -> Codec:
    def to_wire(member: Enum | str) -> str:
        if isinstance(member, Enum):
            return member.name
        return kind[member].name

    def from_wire(name: str) -> Enum:
        try:
            return kind[name]
        except KeyError:
            pass
        try:
            # The same fallback as in vgi_rpc, for peers that send values instead of names.
            return kind(name)
        except ValueError:
            raise ValueError(f"{name!r} is not a member of {kind.__name__}: {', '.join(kind.__members__)}") from None

    return Codec(to_wire, from_wire)


def _dataclass_codec(kind: Any, top: bool) -> Codec:
    def to_struct(value: Any) -> dict[str, Any]:
        row: dict[str, Any] = kind._to_row(value)
        return row

    def to_bytes(value: Any) -> bytes:
        data: bytes = value.serialize_to_bytes()
        return data

    def from_wire(value: Any) -> Any:
        # The received value tells a binary column (bytes) from a struct (a dict).
        return kind.deserialize_from_bytes(value) if isinstance(value, bytes) else kind._from_row(value)

    return Codec(to_bytes if top else to_struct, from_wire)


def _sequence_codec(origin: Any, item: Codec) -> Codec:
    to_item, from_item = item.to_wire, item.from_wire

    def to_wire(values: Iterable[Any]) -> list[Any]:
        return list(values) if to_item is None else [None if value is None else to_item(value) for value in values]

    def from_wire(values: list[Any]) -> Any:
        if from_item is not None:
            values = [None if value is None else from_item(value) for value in values]
        return values if origin is list else origin(values)

    return Codec(
        None if origin is list and to_item is None else to_wire,
        None if origin is list and from_item is None else from_wire,
    )


def _map_codec(key: Codec, value: Codec) -> Codec:
    def convert(each: Callable[[Any], Any] | None, one: Any) -> Any:
        return one if each is None or one is None else each(one)

    def to_wire(mapping: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
        return [(convert(key.to_wire, k), convert(value.to_wire, v)) for k, v in mapping.items()]

    def from_wire(pairs: Iterable[tuple[Any, Any]] | Mapping[Any, Any]) -> dict[Any, Any]:
        items = pairs.items() if isinstance(pairs, Mapping) else pairs
        return {convert(key.from_wire, k): convert(value.from_wire, v) for k, v in items}

    return Codec(to_wire, from_wire)


def _batch_to_bytes(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _batch_from_bytes(data: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_next_batch()


def _schema_to_bytes(schema: pa.Schema) -> bytes:
    data: bytes = schema.serialize().to_pybytes()
    return data


def _schema_from_bytes(data: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(data))
