"""Arrow columns of Python values, for what runs in Spark's workers.

``pa.array``, ``pa.scalar`` and ``from_pylist`` import pandas wherever it is installed: half a second of CPU in each
process of an executor, for nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock import _core

__all__ = ["column", "rows_batch"]


def column(values: Sequence[Any], data_type: pa.DataType) -> pa.Array:
    """Return a column of these values, ``None`` as null.

    Args:
        values: Strings, bytes, bools, whole numbers, microseconds since 1970 for a timestamp; sequences of such for a
            list, mappings for a struct.
        data_type: ``string``, ``binary``, their large forms, ``bool``, ``int32``, ``int64``, ``timestamp("us")``, or a
            list or a struct of such.

    Raises:
        TypeError: A value is not one of the column's type, or columns of the type cannot be made here.
        OverflowError: A number is too large for its type.
        ValueError: The column is larger than its offsets can say.

    Examples:
        >>> column(["a", None], pa.string()).to_pylist()
        ['a', None]
    """
    return _core.column(values, data_type)


def rows_batch(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows as a batch; a field that a row lacks is null.

    Raises:
        TypeError, OverflowError, ValueError: As `column`.

    Examples:
        >>> rows_batch([{"id": 1}], pa.schema([("id", pa.int64()), ("name", pa.string())])).to_pylist()
        [{'id': 1, 'name': None}]
    """
    columns = [column([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
