"""The first stage of a plan that sends a document's parts by several tasks: each document is divided.

::

    path, document ──▶ read once: its digest, and the directory of its container ──▶ a row for each group of children
                                                                                └──▶ or one for the document as it is

Rows carry the position of a part but never its bytes: the task that receives a row opens the document again.
"""

import json
import os
import stat
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock import _core
from penstock._columns import rows_batch
from penstock._places import Place, is_uri
from penstock.documents import Limits, document_name
from penstock.errors import SparkError
from penstock.spark._paths import from_column

if TYPE_CHECKING:
    from penstock.spark.functions import Dehydrate

__all__ = ["CARRIED", "TASK_SCHEMA", "Divide", "Task", "default_name", "stamp"]

CARRIED = ("document", "doc_id", "owner")
"""The columns other than ``path`` that describe a document."""

TASK_SCHEMA = pa.schema(
    [
        pa.field("ordinal", pa.int64()),
        pa.field("slot", pa.int32()),
        pa.field("first", pa.int64()),
        pa.field("last", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("task", pa.string()),
    ]
)
_SLOTS = 1 << 30


@dataclass(frozen=True)
class Task:
    """The facts about a document that every group of it carries."""

    document: str
    path: str
    """The path as given in the row."""
    stamp: list[int] | None = None
    """Length and modification time of the file when it was divided; ``None`` if it is sent by one task."""
    chain: list[dict[str, Any]] | None = None
    """The document and the single containers nested in it, down to the one that is divided."""
    children: int = 0
    inflated: int = 0
    """The inflated bytes in the containers above that one."""
    doc_id: str | None = None
    """The document's identifier, if the row has one."""
    owner: dict[str, Any] | None = None
    """The owner of the document, if the row has one."""

    @property
    def digest(self) -> str:
        """The document's SHA-256 in hex."""
        return str((self.chain or [{}])[0].get("sha256", ""))


def stamp(path: str, storage: Mapping[str, str]) -> list[int] | None:
    """Return the length and modification time of a file or an object; ``None`` if there is no such file."""
    if is_uri(path):
        return _stamp_of_object(path, storage)
    try:
        found = os.stat(path)  # noqa: PTH116 - a path may hold what pathlib would rewrite
    except OSError:
        return None
    return [found.st_size, found.st_mtime_ns] if stat.S_ISREG(found.st_mode) else None


def _stamp_of_object(uri: str, storage: Mapping[str, str]) -> list[int] | None:
    from pyarrow.fs import FileType

    try:
        found = Place.open(uri, storage).info()
    except (OSError, ValueError):
        return None
    return [found.size, found.mtime_ns] if found.type == FileType.File else None


@dataclass(frozen=True)
class Divide:
    """Divides documents into groups, for ``mapInArrow`` over ``ordinal``, ``path`` and the columns of `CARRIED`."""

    options: "Dehydrate"
    peel_bytes: int
    group_bytes: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Divide the documents that the paths name. Spark calls this for each task."""
        for batch in batches:
            carried = [column for column in CARRIED if column in batch.schema.names]
            for row in batch.select(["ordinal", "path", *carried]).to_pylist():
                if not isinstance(row["path"], str):
                    raise SparkError("ingest requires a path in every row, as a string; filter out rows without one")
                rows = list(self._rows(row))
                yield rows_batch(rows, TASK_SCHEMA)

    def _rows(self, row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        ordinal, path = row["ordinal"], row["path"]
        name, local = _named(path, row.get("document"), self.options.root)
        task = Task(name, path, doc_id=row.get("doc_id"), owner=row.get("owner"))
        storage = self.options.storage
        before = None if local is None else stamp(local, storage)
        slot = zlib.crc32(name.encode("utf-8", "surrogatepass")) % _SLOTS
        groups = [(0, 0, 0 if before is None else before[0])]
        if local is not None and before is not None and before[0] >= self.peel_bytes:
            limits = self.options.limits or Limits()
            division = _divide(name, local, storage, limits, self.group_bytes)
            if division is not None and stamp(local, storage) == before:
                chain = [dict(container) for container in division["chain"]]
                children, inflated = division["children"], division["inflated"]
                task = replace(task, stamp=before, chain=chain, children=children, inflated=inflated)
                groups = division["groups"]
        text = json.dumps(asdict(task), ensure_ascii=False)
        for number, (first, last, size) in enumerate(groups):
            at = (slot + number) % _SLOTS
            yield {"ordinal": ordinal, "slot": at, "first": first, "last": last, "bytes": size, "task": text}


def _divide(
    name: str, local: str, storage: Mapping[str, str], limits: Limits, group_bytes: int
) -> "_core._Division | None":
    own_name = name.rpartition("/")[2]
    if not is_uri(local):
        return _core.divide(own_name, local, limits, group_bytes)
    try:
        with Place.open(local, storage).open_file() as file:
            return _core.divide(own_name, file, limits, group_bytes)
    except OSError:
        # The document is sent by one task, which then reports the reason.
        return None


def _named(path: str, document: str | None, root: str | None) -> tuple[str, str | None]:
    try:
        local = from_column(path)
    except OSError:
        return document or path, None
    return document or default_name(local, root), local


def default_name(path: str, root: str | None) -> str:
    """Return a document's default name: its path relative to ``root`` if it is inside, else the last component."""
    if is_uri(path):
        below = path.removeprefix(f"{root.rstrip('/')}/") if root is not None else path
        return below if below != path else path.rstrip("/").rpartition("/")[2]
    if root is not None and Path(path).is_relative_to(root):
        return document_name(path, root)
    return document_name(path)
