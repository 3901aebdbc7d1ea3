"""The conversion of a method's values between Python and the core, and the core's description of a service."""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock import _core
from penstock.vgi._annotations import codec, is_optional
from penstock.vgi.rpc._types import RpcMethodInfo

__all__ = ["Values", "core_protocol", "method_values", "simple", "type_name"]


def simple(kind: pa.DataType) -> bool:
    """Return whether the core exchanges plain Python values of this type; others are arrays with one value."""
    return bool(
        pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_float32(kind)
        or pa.types.is_float64(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or (pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type))
    )


class _Column:
    """One parameter, or the result."""

    __slots__ = ("arrow", "from_wire", "name", "nullable", "plain", "to_wire")

    def __init__(self, name: str, arrow: pa.DataType, annotation: object, nullable: bool) -> None:
        each = codec(annotation, top=True)
        self.name, self.arrow, self.nullable = name, arrow, nullable
        self.to_wire, self.from_wire, self.plain = each.to_wire, each.from_wire, simple(arrow)

    def encode(self, value: Any) -> Any:
        if value is None:
            return None
        try:
            if self.to_wire is not None:
                value = self.to_wire(value)
            return value if self.plain else pa.array([value], self.arrow)
        except (pa.ArrowTypeError, AttributeError, KeyError, OverflowError, ValueError) as error:
            raise TypeError(f"{self.name!r} cannot be {self.arrow}: {error}") from error

    def decode(self, value: Any) -> Any:
        if isinstance(value, pa.Array):
            value = value[0].as_py()
        return value if value is None or self.from_wire is None else self.from_wire(value)


class Values:
    """The converter of a method's parameters and result for the core and back."""

    __slots__ = ("_converted", "_defaults", "_needed", "_parameters", "_result", "info")

    def __init__(self, info: RpcMethodInfo) -> None:
        self.info = info
        fields = info.params_schema
        columns = [
            _Column(name, fields.field(name).type, annotation, is_optional(annotation))
            for name, annotation in info.param_types.items()
        ]
        self._parameters: Mapping[str, _Column] = {column.name: column for column in columns}
        self._converted = [each for each in columns if each.from_wire is not None or not each.plain]
        self._defaults = info.param_defaults
        self._needed = [each.name for each in columns if each.name not in self._defaults]
        self._result = None
        if info.has_return:
            kind = info.result_schema.field(0)
            optional = is_optional(info.result_type) or kind.nullable
            self._result = _Column("result", kind.type, info.result_type, optional)

    @property
    def nulls(self) -> list[str]:
        """The parameters that may be None."""
        return [each.name for each in self._parameters.values() if each.nullable]

    def keywords(self, values: dict[str, Any]) -> dict[str, Any]:
        """Convert received values to arguments; raise ValueError, TypeError or IPCError if one does not fit."""
        for column in self._converted:
            if column.name in values:
                try:
                    values[column.name] = column.decode(values[column.name])
                except ValueError as error:
                    raise ValueError(f"{self.info.name}() parameter {column.name!r}: {error}") from error
        if len(values) < len(self._parameters):
            return {**self._defaults, **values}
        return values

    def encode_arguments(self, keywords: dict[str, Any]) -> dict[str, Any]:
        """Convert a caller's arguments for the core, adding defaults; raise TypeError if they do not fit the method."""
        unknown = keywords.keys() - self._parameters.keys()
        missing = [name for name in self._needed if name not in keywords]
        if unknown or missing:
            wrong = [f"unexpected {name!r}" for name in sorted(unknown)] + [f"missing {name!r}" for name in missing]
            raise TypeError(
                f"{self.info.name}(): {', '.join(wrong)}; it takes {', '.join(self._parameters) or 'nothing'}"
            )
        values = {}
        for name, column in self._parameters.items():
            value = keywords[name] if name in keywords else self._defaults[name]
            if value is None and not column.nullable:
                raise TypeError(f"{self.info.name}() parameter {name!r} is not optional but got None")
            values[name] = column.encode(value)
        return values

    def encode_result(self, value: Any) -> Any:
        """Convert a method's result for the core; raise TypeError if it does not fit the declared type."""
        column = self._result
        if column is None:
            return None
        if value is None and not column.nullable:
            raise TypeError(f"{self.info.name}() returned None, and its result is not optional")
        return column.encode(value)

    def decode_result(self, value: Any) -> Any:
        """Convert a received result."""
        return None if self._result is None else self._result.decode(value)


def core_protocol(name: str, values: Mapping[str, Values]) -> "_core.VgiProtocol":
    """Return the core's description of a service."""
    return _core.VgiProtocol(name, [_core_method(each) for each in values.values()])


def _core_method(values: Values) -> dict[str, Any]:
    info = values.info
    return {
        "name": info.name,
        "kind": info.method_type.value,
        "params": info.params_schema,
        "result": info.result_schema,
        "optional": list(info.param_defaults),
        "nulls": values.nulls,
        "header": None if info.header_type is None else info.header_type.ARROW_SCHEMA,
        "is_exchange": info.is_exchange,
        "has_return": info.has_return,
        "doc": info.doc,
        "param_types": json.dumps({name: type_name(kind) for name, kind in info.param_types.items()}),
        "param_defaults": json.dumps(_plain_defaults(info.param_defaults)),
    }


def type_name(annotation: object) -> str:
    """Return an annotation as it is written in code."""
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")


def _plain_defaults(defaults: Mapping[str, object]) -> dict[str, object]:
    """Return the defaults that JSON can represent; enum members become their names."""
    plain: dict[str, object] = {}
    for name, value in defaults.items():
        said = getattr(value, "name", value) if hasattr(type(value), "__members__") else value
        try:
            json.dumps(said)
        except TypeError:
            continue
        plain[name] = said
    return plain


def method_values(methods: Mapping[str, RpcMethodInfo]) -> Mapping[str, Values]:
    """Return the converter of each method's values, by method name."""
    return {name: Values(info) for name, info in methods.items()}
