"""The first stage of a plan that works on the parts of a document apart: how each document is divided.

::

    path, document ──▶ read once: its digest, and the directory of its container ──▶ a row for each group of children
                                                                                └──▶ or one for the document as it is

Rows carry where a part lies, and never its octets: whoever gets a row opens the document again.
"""

import json
import os
import stat
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock import _core
from penstock.documents import Limits, document_name
from penstock.errors import SparkError
from penstock.spark._paths import from_column

if TYPE_CHECKING:
    from penstock.spark.functions import Dehydrate

__all__ = ["TASK_SCHEMA", "Divide", "Task", "stamp"]

TASK_SCHEMA = pa.schema(
    [
        pa.field("ordinal", pa.int64()),
        pa.field("slot", pa.int32()),
        pa.field("first", pa.int64()),
        pa.field("last", pa.int64()),
        pa.field("octets", pa.int64()),
        pa.field("task", pa.string()),
    ]
)
_SLOTS = 1 << 30


@dataclass(frozen=True)
class Task:
    """What every group of a document knows of it."""

    document: str
    path: str
    """As the row named it."""
    stamp: list[int] | None = None
    """Length and time of the file while it was divided; ``None`` if it is sent as one."""
    chain: list[dict[str, Any]] | None = None
    """The document, and what lies alone in it, down to the container that is divided."""
    children: int = 0
    inflated: int = 0
    """The octets that lie in the containers above that one."""

    @property
    def digest(self) -> str:
        """The document's SHA-256 in hex."""
        return str((self.chain or [{}])[0].get("sha256", ""))


def stamp(path: str) -> list[int] | None:
    """Give what changes when a file does; ``None`` if it is no file, or is not there."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a path may hold what pathlib would rewrite
    except OSError:
        return None
    return [found.st_size, found.st_mtime_ns] if stat.S_ISREG(found.st_mode) else None


@dataclass(frozen=True)
class Divide:
    """Gives the groups of each document, for ``mapInArrow`` over ``ordinal``, ``path`` and perhaps ``document``."""

    options: "Dehydrate"
    peel_bytes: int
    group_bytes: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Divide what the paths name; Spark calls this for each task."""
        for batch in batches:
            named = "document" in batch.schema.names
            for row in batch.select(["ordinal", "path", *(["document"] if named else [])]).to_pylist():
                if not isinstance(row["path"], str):
                    raise SparkError("ingest needs a path in every row, as a string; filter rows without one")
                rows = list(self._rows(row["ordinal"], row["path"], row.get("document")))
                yield pa.RecordBatch.from_pylist(rows, TASK_SCHEMA)

    def _rows(self, ordinal: int, path: str, document: str | None) -> Iterator[dict[str, Any]]:
        name, local = _named(path, document, self.options.root)
        task = Task(name, path)
        before = None if local is None else stamp(local)
        slot = zlib.crc32(name.encode("utf-8", "surrogatepass")) % _SLOTS
        groups = [(0, 0, 0 if before is None else before[0])]
        if local is not None and before is not None and before[0] >= self.peel_bytes:
            limits = self.options.limits or Limits()
            division = _core.divide(name.rpartition("/")[2], local, limits, self.group_bytes)
            if division is not None and stamp(local) == before:
                chain = [dict(container) for container in division["chain"]]
                task = Task(name, path, before, chain, division["children"], division["inflated"])
                groups = division["groups"]
        text = json.dumps(asdict(task), ensure_ascii=False)
        for number, (first, last, octets) in enumerate(groups):
            at = (slot + number) % _SLOTS
            yield {"ordinal": ordinal, "slot": at, "first": first, "last": last, "octets": octets, "task": text}


def _named(path: str, document: str | None, root: str | None) -> tuple[str, str | None]:
    try:
        local = from_column(path)
    except OSError:
        return document or path, None
    if document:
        return document, local
    inside = root is not None and os.path.commonpath([os.path.abspath(local), root]) == root  # noqa: PTH100
    return document_name(local, root if inside else None), local
