"""Record batches of the size that Spark moves fastest: 4 to 8 MiB."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

__all__ = ["TARGET_BYTES", "combine", "resize"]

TARGET_BYTES = 4 << 20
_MOST_BYTES = 8 << 20
_MOST_ROWS = 8192


def resize(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Combine small batches and divide large ones; a single row may exceed every bound."""
    waiting: list[pa.RecordBatch] = []
    size = rows = 0
    for batch in batches:
        for piece in _divide(batch):
            if waiting and (size + piece.nbytes > _MOST_BYTES or rows + piece.num_rows > _MOST_ROWS):
                yield combine(waiting)
                waiting, size, rows = [], 0, 0
            waiting.append(piece)
            size += piece.nbytes
            rows += piece.num_rows
            if size >= TARGET_BYTES:
                yield combine(waiting)
                waiting, size, rows = [], 0, 0
    if waiting:
        yield combine(waiting)


def combine(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Combine batches into one."""
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _divide(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.num_rows == 0:
        return
    if batch.num_rows == 1 or (batch.nbytes <= _MOST_BYTES and batch.num_rows <= _MOST_ROWS):
        yield batch
        return
    half = batch.num_rows // 2
    yield from _divide(batch.slice(0, half))
    yield from _divide(batch.slice(half))
