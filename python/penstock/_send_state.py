"""The state folder of ``penstock pipestream send``, which outlives its process: the session and its documents.

::

    DIR/lock              held by the process that sends
    DIR/session/          the unfinished session, if there is one
    DIR/receipts/         receipts of its documents, KEY.json, until it has ended successfully
    DIR/ending.json       every document of a session is settled: {"session", "receipts", "documents"}
    DIR/documents.jsonl   delivered documents: a line for each one that is COMPLETE, of which the last one counts

A session that has ended is no longer in ``session``, or its file records the end. If ``ending.json`` is of a session
other than the one that continues, its receipts have not been published yet, at whatever moment the process was killed.
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock import _core
from penstock._staged_receipts import StagedReceipts
from penstock.errors import DocumentsError

__all__ = ["SendState"]

_BLOCK = 1 << 20


class SendState:
    """The contents of the state folder, which belongs to one process at a time."""

    def __init__(self, folder: Path) -> None:
        """Lock the folder, which is created if necessary, and read it.

        Raises:
            DocumentsError: Of kind "io", if another process has locked it.
            OSError: The folder cannot be written.
        """
        self._folder = folder
        self.session = folder / "session"
        self.receipts = folder / "receipts"
        for each in (folder, self.receipts):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise DocumentsError(f"another process uses {folder}", "io") from None
        self._accounts = {line["document"]: line for line in _lines(folder / "documents.jsonl")}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._lock)

    @property
    def unfinished(self) -> bool:
        """Whether there is a session in the folder. It may have ended, which is known only after connecting."""
        return any(self.session.glob("*.session"))

    def settled(self, document: str, path: Path) -> dict[str, Any] | None:
        """Return the line of a document that earlier runs have settled, if its bytes have not changed.

        The document is COMPLETE, or belongs to a session that no run has reported yet: if a run was killed when its
        session had ended, the next run only reports it, and does not retry documents that have failed.
        """
        line = self._accounts.get(document)
        if line is None:
            return None
        try:
            digest = _digest(path)
        except OSError:
            return None
        return line if line["key"] == _core.document_key(document, digest) else None

    def ending(self, session: str, receipts: str | None, documents: Sequence[Mapping[str, Any]]) -> None:
        """Record that every document of a session is settled. Their receipts must be in `receipts` by then."""
        _sync(self.receipts)
        ending = {"session": session, "receipts": receipts, "documents": list(documents)}
        _write(self._folder / "ending.json", json.dumps(ending, ensure_ascii=False))

    def goes_on(self, session: str, storage: Mapping[str, str] | None) -> None:
        """Prepare for a session of an earlier process that continues, and whose documents will be settled again.

        Receipts that another session has left are published first: the process was killed after that session had ended
        and this one had begun.

        Raises:
            OSError: As `ended`.
            DocumentsError: As `ended`.
        """
        mark = self._folder / "ending.json"
        if not mark.exists():
            self.begin()
        elif _parse(mark.read_bytes(), mark).get("session") != session:
            self.ended(storage)
        # Otherwise this session may be about to end, so its own record is kept.

    def ended(self, storage: Mapping[str, str] | None) -> None:
        """Publish the receipts of a session that has ended successfully, and record its documents as delivered.

        Raises:
            OSError: A receipt cannot be written; the next run retries.
            DocumentsError: Of kind "io", if no receipts can be written at all.
        """
        mark = self._folder / "ending.json"
        try:
            ending = _parse(mark.read_bytes(), mark)
        except FileNotFoundError:
            return
        with StagedReceipts(ending["receipts"], storage, staging=self.receipts) as receipts:
            for line in ending["documents"]:
                receipts.take(line["document"], line["key"])
            receipts.publish()
        complete = [line for line in ending["documents"] if line["status"] == "COMPLETE"]
        _append(self._folder / "documents.jsonl", complete)
        self._accounts.update((line["document"], line) for line in ending["documents"])
        self.begin()

    def begin(self) -> None:
        """Discard staged receipts: a session begins, or continues and will settle its documents again."""
        (self._folder / "ending.json").unlink(missing_ok=True)
        shutil.rmtree(self.receipts, ignore_errors=True)
        self.receipts.mkdir(mode=0o700, exist_ok=True)


def _digest(path: Path) -> bytes:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.digest()


def _lines(path: Path) -> list[dict[str, Any]]:
    """Read the complete lines; a last line that its process did not finish is ignored."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return []
    return [_parse(line, path) for line in text.split(b"\n")[:-1]]


def _parse(text: bytes | str, path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise DocumentsError(
            f"{path} is damaged: {error}; remove it to send all documents again", "malformed"
        ) from None
    return found


def _append(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    with path.open("a+b") as file:
        # Remove a line that an earlier process did not finish.
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.truncate(_whole(path))
        file.write("".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines).encode())
        file.flush()
        os.fsync(file.fileno())
    _sync(path.parent)


def _whole(path: Path) -> int:
    return path.read_bytes().rfind(b"\n") + 1


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
