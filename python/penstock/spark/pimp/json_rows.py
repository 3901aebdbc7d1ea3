"""Convert lines of JSON into rows: the reverse of what `penstock.pimp` does with batches."""

import base64
import datetime
import decimal
import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.json

from penstock.errors import SparkError

__all__ = ["rows"]

_BLOCK = 1 << 20


def rows(lines: bytes, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Return the rows of whole lines. Fields that are not in the schema are omitted; missing fields are null.

    Raises:
        SparkError: A line is not an object, or a value does not have its column's type.
    """
    try:
        if all(_is_plain(field.type) for field in schema):
            # Arrow cannot read a row that is larger than a block.
            read = pyarrow.json.ReadOptions(block_size=max(_BLOCK, len(lines) + 1))
            parse = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
            table = pyarrow.json.read_json(io.BytesIO(lines), read_options=read, parse_options=parse)
            yield from table.select(schema.names).cast(schema).to_batches()
            return
        objects = [json.loads(line) for line in lines.split(b"\n") if line.strip()]
        columns = [
            pa.array([_made(each.get(field.name), field.type) for each in objects], field.type) for field in schema
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
    except (pa.ArrowException, ValueError, TypeError, AttributeError, ArithmeticError) as error:
        raise SparkError(f"the lines of a job do not match the schema: {error}", "malformed") from error


def _is_plain(kind: pa.DataType) -> bool:
    """Return whether Arrow's JSON reader can read values of this type directly."""
    if pa.types.is_list(kind):
        return _is_plain(kind.value_type)
    if pa.types.is_struct(kind):
        return all(_is_plain(field.type) for field in kind)
    checks = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string)
    return any(check(kind) for check in checks)


_MAKERS: list[tuple[Callable[[pa.DataType], bool], Callable[[Any], object]]] = [
    (pa.types.is_binary, lambda value: base64.b64decode(value, validate=True)),
    (pa.types.is_date, datetime.date.fromisoformat),
    (pa.types.is_timestamp, datetime.datetime.fromisoformat),
    (pa.types.is_duration, lambda value: datetime.timedelta(seconds=value)),
    (pa.types.is_decimal, lambda value: decimal.Decimal(str(value))),
]


def _made(value: Any, kind: pa.DataType) -> object:
    """Convert a JSON value to a value of an Arrow type."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, dict) else value
        return [(_made(key, kind.key_type), _made(each, kind.item_type)) for key, each in pairs]
    if pa.types.is_list(kind):
        return [_made(each, kind.value_type) for each in value]
    if pa.types.is_struct(kind):
        return {field.name: _made(value.get(field.name), field.type) for field in kind}
    return next((make(value) for check, make in _MAKERS if check(kind)), value)
