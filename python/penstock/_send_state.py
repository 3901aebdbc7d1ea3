"""The folder of a sending that outlives its process: its session, and what is known of its documents.

::

    DIR/lock              held by the process that sends
    DIR/session/          the unfinished session, where there is one
    DIR/receipts/         receipts of its documents, KEY.json, until it has ended well
    DIR/ending.json       every document of a session is settled: {"session", "receipts", "documents"}
    DIR/documents.jsonl   what was delivered: for each document that is COMPLETE a line, of which the last one counts

A session that has ended is not in ``session`` any more, or its file says so. So ``ending.json`` of another session
than the one that goes on, if one does, says that nobody has shown the receipts yet, at whatever instant the process
was killed.
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
    """What a sending keeps in its folder, which belongs to one process at a time."""

    def __init__(self, folder: Path) -> None:
        """Take the folder, which is made if need be.

        Raises:
            DocumentsError: Of kind "io" where another process has it.
            OSError: Where it cannot be written.
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
            raise DocumentsError(f"another process sends with {folder}", "io") from None
        self._accounts = {line["document"]: line for line in _lines(folder / "documents.jsonl")}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._lock)

    @property
    def unfinished(self) -> bool:
        """Whether there is a session in the folder. It may have ended, which is known once it goes on, or does not."""
        return any(self.session.glob("*.session"))

    def settled(self, document: str, path: Path) -> dict[str, Any] | None:
        """Return the line of a document, with the bytes that it has now, that earlier runs have settled.

        It is COMPLETE, or belongs to a session of which no run has told: a run that was killed when its session had
        ended is concluded by the next one, which tries nothing again that has failed.
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
        """Write down that every document of a session is settled; their receipts are in `receipts` then."""
        _sync(self.receipts)
        ending = {"session": session, "receipts": receipts, "documents": list(documents)}
        _write(self._folder / "ending.json", json.dumps(ending, ensure_ascii=False))

    def goes_on(self, session: str, storage: Mapping[str, str] | None) -> None:
        """Take a session of an earlier process up again, which will tell of its documents once more.

        What another session has left, because the process was killed when it had ended and this one had begun, is
        shown first.

        Raises:
            OSError: As `ended`.
            DocumentsError: As `ended`.
        """
        mark = self._folder / "ending.json"
        if not mark.exists():
            self.begin()
        elif _parse(mark.read_bytes(), mark).get("session") != session:
            self.ended(storage)
        # Else it may be about to end, though this process has not heard so: what it has said of its documents stays.

    def ended(self, storage: Mapping[str, str] | None) -> None:
        """Show the receipts of a session that has ended well, and keep its documents as delivered.

        Raises:
            OSError: Where one cannot be written; the next run tries again.
            DocumentsError: Of kind "io" where they cannot be written at all.
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
        """Forget what was staged: a session begins, or goes on and is about to tell of its documents again."""
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
    """Read the whole lines; one that was cut off by the end of its process is as if it were not there."""
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
            f"{path} is damaged: {error}; without the file all documents are sent", "malformed"
        ) from None
    return found


def _append(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    with path.open("a+b") as file:
        # Behind what an earlier process has not written to its end.
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
