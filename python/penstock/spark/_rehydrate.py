"""Reassemble documents from the rows of their parts.

A document starts with its own row, at depth 0; the rows up to the next one at depth 0 are its parts. The bytes of parts
are not read, and only as much text is kept as the composite may have.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock._columns import rows_batch
from penstock.documents import Composite, Part
from penstock.documents import rehydrate as rehydrate_parts
from penstock.errors import DocumentsError, SparkError
from penstock.spark._batches import resize
from penstock.spark.schemas import COMPOSITE_ARROW_SCHEMA, NODE

if TYPE_CHECKING:
    from penstock.spark.functions import Rehydrate

__all__ = ["put_together"]

_COLUMNS = ("document", "key", "path", "type", "bytes", "sha256", "status", "reason", "depth")
_BETWEEN = "\n\n"


def put_together(options: "Rehydrate", batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return a composite for each document whose rows are in the batches."""
    columns = [*_COLUMNS, "text"] if options.text else [*_COLUMNS]
    if options.order_by is not None:
        batches = _ordered(batches, columns, options.order_by)
    return resize(document.composite() for document in _documents(batches, columns, options.max_text))


class _Document:
    """The rows of a document that were read so far."""

    def __init__(self, first: dict[str, Any], max_text: int) -> None:
        self._name: str = first["document"]
        self._key: str = first["key"]
        self._parts: list[Part] = []
        self._texts: list[str | None] = []
        self._room = max_text
        self._cut = False
        # Rows with a column claim were sent under a policy, which has determined the status of every container.
        self._strict = "claim" not in first
        self.add(first)

    def add(self, row: dict[str, Any]) -> None:
        """Add the next row."""
        self._parts.append(
            Part(
                path=tuple(row["path"]),
                type=row["type"],
                sha256=row["sha256"],
                bytes=row["bytes"],
                depth=row["depth"],
                status=row["status"],
                reason=row["reason"],
            )
        )
        text: str | None = row.get("text")
        if text is not None and len(text) > self._room:
            self._cut = True
            text = text[: self._room] or None
        self._room -= len(text or "")
        self._texts.append(text)

    def composite(self) -> pa.RecordBatch:
        """Return the reassembled document as one row."""
        try:
            composite = rehydrate_parts(self._parts, strict=self._strict)
        except DocumentsError as error:
            raise SparkError(
                f"the rows of {self._name} are incomplete, or not in the order that dehydrate returned: {error}; "
                "after a shuffle, rehydrate requires order_by",
                error.kind,
            ) from error
        root = composite.root
        row = {
            "document": self._name,
            "key": self._key,
            "status": root.status,
            "reason": root.reason,
            "sha256": root.sha256,
            "bytes": root.bytes,
            "parts": len(self._parts) - 1,
            "failed": sum(part.status == "FAILED" for part in self._parts[1:]),
            "text": _BETWEEN.join(filter(None, self._texts)) or None,
            "text_cut": self._cut,
            "tree": self._tree(composite),
            "content_root": composite.content_root,
        }
        return rows_batch([row], COMPOSITE_ARROW_SCHEMA)

    def _tree(self, composite: Composite) -> list[dict[str, Any]]:
        nodes = [node.part for node in composite.walk()][1:]
        names = [field.name for field in NODE if field.name != "text"]
        return [
            {**{name: getattr(part, name) for name in names}, "text": text}
            for part, text in zip(nodes, self._texts[1:], strict=True)
        ]


def _documents(batches: Iterable[pa.RecordBatch], columns: list[str], max_text: int) -> Iterator[_Document]:
    document: _Document | None = None
    for batch in batches:
        missing = set(columns).difference(batch.schema.names)
        if missing:
            raise SparkError(f"rehydrate requires the rows of dehydrate; missing columns: {', '.join(sorted(missing))}")
        for row in batch.select(_wanted(columns, batch)).to_pylist():
            if row["depth"] == 0:
                if document is not None:
                    yield document
                document = _Document(row, max_text)
            elif document is None:
                name = row["document"]
                raise SparkError(
                    f"the rows of {name} do not begin with its root; after a shuffle, rehydrate requires order_by"
                )
            else:
                document.add(row)
    if document is not None:
        yield document


def _wanted(columns: list[str], batch: pa.RecordBatch) -> list[str]:
    """Return the columns, and ``claim`` if the rows have it."""
    return [*columns, "claim"] if "claim" in batch.schema.names else columns


def _ordered(batches: Iterator[pa.RecordBatch], columns: list[str], order_by: str) -> Iterator[pa.RecordBatch]:
    """Sort the rows of a group by index, because their texts may have more bytes than one column can hold."""
    import pyarrow.compute as pc  # the import is slow, and rows are seldom sorted

    rows = list(batches)
    if not rows:
        return
    if order_by not in rows[0].schema.names:
        raise SparkError(f"rehydrate cannot order by {order_by}: the rows have no such column")
    positions = pa.chunked_array([batch.column(order_by) for batch in rows])
    starts = [0]
    for batch in rows:
        starts.append(starts[-1] + batch.num_rows)
    for position in pc.sort_indices(positions).to_pylist():
        at = bisect_right(starts, position) - 1
        yield rows[at].select(_wanted(columns, rows[at])).slice(position - starts[at], 1)
