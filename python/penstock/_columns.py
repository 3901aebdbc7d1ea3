"""Make Arrow columns from Python values in Spark's workers.

``pa.array``, ``pa.scalar`` and ``from_pylist`` import pandas if it is installed, which needlessly costs half a second
of CPU in each process of an executor.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock import _core

__all__ = ["column", "rows_batch"]


def column(values: Sequence[Any], data_type: pa.DataType) -> pa.Array:
    """Return a column with the given values; ``None`` becomes null.

    Args:
        values: str, bytes, bool or int values; for a timestamp, microseconds since 1970; for a list, sequences of such
            values; for a struct, mappings.
        data_type: ``string``, ``binary``, their large forms, ``bool``, ``int32``, ``int64``, ``timestamp("us")``, or a
            list or a struct of such types.

    Raises:
        TypeError: A value does not have the column's type, or the type is not supported.
        OverflowError: An int is too large for its type.
        ValueError: The column is too large for its offsets.

    Examples:
        >>> column(["a", None], pa.string()).to_pylist()
        ['a', None]
    """
    return _core.column(values, data_type)


def rows_batch(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows as a record batch; a field that a row lacks is null.

    Raises:
        TypeError, OverflowError, ValueError: As `column`.

    Examples:
        >>> rows_batch([{"id": 1}], pa.schema([("id", pa.int64()), ("name", pa.string())])).to_pylist()
        [{'id': 1, 'name': None}]
    """
    columns = [column([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
