"""The changes that an index must make after documents were split again."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from penstock._columns import rows_batch
from penstock._places import check_storage, is_uri
from penstock._previous import EarlierReceipts, Pointer
from penstock._receipt_changes import compare
from penstock._receipt_form import Malformed
from penstock.errors import SparkError
from penstock.spark._batches import resize
from penstock.spark._paths import from_option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["CHANGE_ARROW_SCHEMA", "CHANGE_SCHEMA", "changes"]

CHANGE_ARROW_SCHEMA = pa.schema(
    [
        pa.field("document", pa.string()),
        pa.field("change", pa.string()),
        pa.field("part", pa.string()),
        pa.field("path", pa.list_(pa.field("element", pa.string()))),
        pa.field("nth", pa.int32()),
        pa.field("type", pa.string()),
        pa.field("bytes", pa.int64()),
        pa.field("sha256", pa.string()),
        pa.field("status", pa.string()),
        pa.field("file", pa.string()),
    ]
)

CHANGE_SCHEMA: StructType = from_arrow_schema(CHANGE_ARROW_SCHEMA)
"""The rows that ``changes`` returns: one for each part that was added, changed or removed."""

_POINTER = pa.schema([pa.field(name, pa.string()) for name in ("document", "key", "previous")])
_BATCH = 4096


def changes(
    documents: "DataFrame", receipts: str, *, gone: bool = True, storage: Mapping[str, str] | None = None
) -> "DataFrame":
    """Return the parts of documents that differ from the previous version, as rows of `CHANGE_SCHEMA`.

    ``change`` is ``added``, ``changed`` or ``removed``, and ``part`` is `penstock.receipts.part_key`, the key for the
    rows of an index: delete the removed parts and upsert all others. Applying the same rows again changes nothing. The
    latest receipt of each document is compared with that of the previous version, which had other bytes; all parts of a
    document's first version are added.

    Args:
        documents: Rows with a column ``document``, after the documents were split.
        receipts: The folder or the URI of the receipts that ``dehydrate`` has written.
        gone: Whether all parts of a document that has a receipt but no row are returned as removed. This reads a small
            file for each document that ever had a receipt; otherwise only those of ``documents`` are read.
        storage: Options of the object store, if ``receipts`` is a URI; by default the environment of the executors is
            used.

    Raises:
        SparkError: There is no column ``document``, or an option is invalid.

    Example:
        >>> from penstock.spark import changes
        >>> dropped = changes(documents, "/data/receipts").where("change = 'removed'")  # doctest: +SKIP
    """
    if "document" not in documents.columns:
        raise SparkError(f"changes requires a column document; the columns are {', '.join(documents.columns)}")
    try:
        options = check_storage(storage, receipts)
    except ValueError as error:
        raise SparkError(str(error)) from None
    where = receipts if is_uri(receipts) else str(Path(from_option(receipts)).absolute())
    folder = _Folder(where, options)
    named = documents.select("document").distinct()
    rows = named.mapInArrow(_Changes(folder, gone=False), CHANGE_SCHEMA)
    if not gone:
        return rows
    known = documents.sparkSession.range(256).mapInArrow(_List(folder), from_arrow_schema(_POINTER))
    lost = known.join(named, "document", "left_anti")
    return rows.unionByName(lost.mapInArrow(_Changes(folder, gone=True), CHANGE_SCHEMA))


@dataclass(frozen=True)
class _Folder:
    """The location of receipts, in a form that can be sent to the workers."""

    where: str
    storage: Mapping[str, str]

    def open(self) -> EarlierReceipts:
        receipts = EarlierReceipts(self.where, self.storage)
        receipts.prepare()
        return receipts


@dataclass(frozen=True)
class _List:
    """Lists pointers, for ``mapInArrow``: each number stands for the folder of the hashes that begin with it."""

    folder: _Folder

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        receipts = self.folder.open()
        for batch in batches:
            for number in batch.column("id").to_pylist():
                found = [
                    {"document": pointer.document, "key": pointer.key, "previous": pointer.previous}
                    for pointer in receipts.pointers(f"{number:02x}")
                ]
                yield rows_batch(found, _POINTER)


@dataclass(frozen=True)
class _Changes:
    """Compares receipts, for ``mapInArrow``; if ``gone``, all parts of each document are removed."""

    folder: _Folder
    gone: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        receipts = self.folder.open()
        names = (name for batch in batches for name in batch.column("document").to_pylist())
        return resize(batch for name in names for batch in self._document(receipts, name))

    def _document(self, receipts: EarlierReceipts, name: str | None) -> Iterator[pa.RecordBatch]:
        pointer = None if name is None else receipts.pointer(name)
        if pointer is None:
            return
        rows: list[dict[str, Any]] = []
        for row in self._rows(receipts, pointer):
            rows.append(row)
            if len(rows) == _BATCH:
                yield rows_batch(rows, CHANGE_ARROW_SCHEMA)
                rows = []
        if rows:
            yield rows_batch(rows, CHANGE_ARROW_SCHEMA)

    def _rows(self, receipts: EarlierReceipts, pointer: Pointer) -> Iterator[dict[str, Any]]:
        latest = _load(receipts, pointer.key)
        old, new = (latest, None) if self.gone else (_load(receipts, pointer.previous), latest)
        for change in compare(old, new):
            if change.kind == "unchanged":
                continue
            part = change.new or change.old or {}
            yield {
                "document": pointer.document,
                "change": change.kind,
                "part": change.key,
                "path": list(change.path),
                "nth": change.nth,
                **{name: part.get(name) for name in ("type", "bytes", "sha256", "status", "file")},
            }


def _load(receipts: EarlierReceipts, key: str | None) -> dict[str, Any] | None:
    if key is None:
        return None
    try:
        return receipts.load(key)
    except FileNotFoundError:
        return None
    except (OSError, Malformed) as error:
        raise SparkError(f"the receipt {key}.json cannot be read: {error}", "io") from error
