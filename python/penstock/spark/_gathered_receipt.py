"""The receipt of a document whose parts are in several sessions, written while its rows pass."""

import json
from collections.abc import Mapping
from pathlib import Path
from shutil import copyfileobj
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from penstock import _core
from penstock._previous import KeptScopes
from penstock.documents import DocumentResult
from penstock.pipestream import Status

__all__ = ["GatheredReceipt"]

_IN_MEMORY = 8 << 20
_PART = (
    "path", "type", "sha256", "bytes", "status", "reason", "attempts", "session", "scope", "entity", "file",
)  # fmt: skip
_DOCUMENT = ("version", "document", "sha256", "bytes", "status", "reason", "content_root", "session", "root", "file")
_DOCUMENT_MAY = ("doc_id", "owner", "uri", "claim", "policy", "outcome")


class _List:
    """The elements of a JSON array, in memory up to 8 MiB and in a temporary file beyond that."""

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - closed with the receipt
        self._begun = False

    def add(self, text: str) -> None:
        self._file.write((", " if self._begun else "").encode() + text.encode())
        self._begun = True

    def copy(self, target: Any) -> None:
        self._file.seek(0)
        copyfileobj(self._file, target)

    def close(self) -> None:
        self._file.close()


class GatheredReceipt:
    """Builds a receipt from a document's rows of `PLACED_SCHEMA`, in order, with one batch of them in memory."""

    def __init__(self, containers: DocumentResult, path: Path | None, previous: Mapping[str, Any] | None) -> None:
        """Prepare a receipt for ``path``, or none for ``None``; ``containers`` is the result of the document itself."""
        self._path = path
        self._document: dict[str, Any] = {**containers.summary}
        self._tree = _core.ContentTree()
        self._kept = KeptScopes(previous)
        self._kept.add_document(self._document)
        self._scopes, self._parts = _List(), _List()
        self._incomplete = 0

    def __enter__(self) -> Self:
        """Return the receipt."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the temporary files."""
        self._scopes.close()
        self._parts.close()

    def add_scope(self, scope: Mapping[str, Any] | None) -> None:
        """Add the scope of a group; ``None`` for a session without scopes and for a group that was not sent again."""
        if scope is not None:
            self._scopes.add(json.dumps(scope))

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows; the row of the document itself is not listed as a part."""
        if self._path is None:
            return
        for row in batch.select([*_PART, "claim", "digest"]).to_pylist():
            if row["digest"] is not None:
                self._scopes.add(row["digest"])
            if row["path"]:
                part = {name: row[name] for name in _PART}
                if row["claim"] is not None:
                    part["claim"] = row["claim"]
                digest = None if part["sha256"] is None else bytes.fromhex(part["sha256"])
                self._tree.push(part["path"], digest, Status[part["status"]])
                self._kept.add(part)
                self._incomplete += len(part["path"]) == 1 and part["status"] != "COMPLETE"
                self._parts.add(json.dumps(part, ensure_ascii=False))

    def write(self) -> None:
        """Write the receipt, after the last row."""
        if self._path is None:
            return
        for scope in self._kept.scopes():
            self._scopes.add(json.dumps(scope))
        self._document["content_root"] = self._tree.root().hex()
        if "outcome" in self._document:
            # The session of the containers does not know the children that other tasks have sent.
            content = self._incomplete == 0
            done = self._document["status"] == "COMPLETE"
            self._document["outcome"] = "FAILED" if not done else "RESOLVED" if content else "PARTIAL"
        names = [*_DOCUMENT, *(name for name in _DOCUMENT_MAY if name in self._document)]
        head = json.dumps({name: self._document[name] for name in names}, ensure_ascii=False)
        with self._path.open("wb") as file:
            file.write(head[:-1].encode() + b', "scopes": [')
            self._scopes.copy(file)
            file.write(b'], "parts": [')
            self._parts.copy(file)
            file.write(b"]}\n")
