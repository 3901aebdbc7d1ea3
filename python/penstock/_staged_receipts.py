"""Receipts that are published only after their session has ended successfully."""

import fcntl
import os
import platform
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock import receipts
from penstock._places import Place, is_uri
from penstock._previous import EarlierReceipts
from penstock.documents import DocumentResult
from penstock.errors import DocumentsError

__all__ = ["StagedReceipts"]

_AT_ONCE = 8


def _prefix() -> str:
    """Return the prefix of the staging folders that this machine has made since it was booted.

    A lock can be tested only on the machine that took it: a network file system may hide the locks of other machines,
    so their folders are left alone.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = f"{platform.node()}-{uuid.getnode()}"
    return f".receipts-{uuid.uuid5(uuid.NAMESPACE_OID, boot).hex[:12]}-"


def _stage(folder: Path) -> tuple[Path, int]:
    """Make a staging folder, and lock it for as long as this process lives."""
    while True:
        # On the same file system as the folder, so that a receipt can be moved there atomically.
        staging = Path(tempfile.mkdtemp(prefix=_prefix(), dir=folder))
        try:
            lock = os.open(staging, os.O_RDONLY)
        except FileNotFoundError:
            # Another process has cleaned it up before it was locked.
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        except OSError:
            # On a file system without locks no other process can clean up either.
            return staging, lock
        if os.fstat(lock).st_nlink > 0 and staging.exists():
            return staging, lock
        os.close(lock)


def _clean(folder: Path) -> None:
    """Remove the staging folders of killed processes on this machine, whose locks have been released."""
    for abandoned in folder.glob(f"{_prefix()}*"):
        try:
            lock = os.open(abandoned, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        else:
            shutil.rmtree(abandoned, ignore_errors=True)
        finally:
            os.close(lock)


class StagedReceipts:
    """Receipts that stay hidden until `publish`; those that are not published by the end of the block are discarded.

    A receipt of a session that was not closed with code 0 could not be verified, and would replace an earlier one that
    can.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        storage: Mapping[str, str] | None = None,
        *,
        staging: Path | None = None,
    ) -> None:
        """Publish into ``folder``, which is created if necessary, or below a URI; without one, write nothing.

        ``staging`` is a folder that keeps unpublished receipts, so that another process can publish them. Only receipts
        that this process has added or taken over are published.

        Raises :class:`penstock.DocumentsError` of kind "io" if the folder cannot be written or the store does not
        answer.
        """
        self._staging: Path | None = None
        self._place: Place | None = None
        self._lock: int | None = None
        self._pointers: EarlierReceipts | None = None
        self._documents: dict[str, str] = {}
        self._keeps = staging is not None
        if folder is None:
            return
        try:
            self._pointers = EarlierReceipts(folder, storage)
            if is_uri(str(folder)):
                # Objects are written atomically, so the staging folder can be on any file system.
                self._place = Place.open(str(folder), storage)
                self._place.info()
                self._staging = staging or Path(tempfile.mkdtemp(prefix="receipts-"))
            else:
                self._folder = Path(folder)
                self._folder.mkdir(parents=True, exist_ok=True)
                _clean(self._folder)
                self._staging, self._lock = (staging, None) if staging is not None else _stage(self._folder)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise DocumentsError(f"receipts cannot be written into {folder}: {why}", "io") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._staging is not None and not self._keeps:
            shutil.rmtree(self._staging, ignore_errors=True)
            if self._lock is not None:
                os.close(self._lock)

    def add(self, result: DocumentResult) -> str | None:
        """Stage a document's receipt, and return the path or URI at which it will be published."""
        if self._staging is None:
            return None
        self._documents[result.key] = result.document
        name = receipts.write(result, self._staging).name
        return str(self._folder / name) if self._place is None else f"{self._place.uri}/{name}"

    def place(self, document: str, key: str) -> Path | None:
        """Return the path to which the caller can write a document's receipt, to be published like the others."""
        if self._staging is None:
            return None
        self._documents[key] = document
        return self._staging / f"{key}.json"

    def take(self, document: str, key: str) -> None:
        """Include the receipt of a document in `publish`, if an earlier process has staged it."""
        self._documents[key] = document

    def has(self, key: str) -> bool:
        """Return whether a receipt with this key is published; True if no receipts are written at all."""
        if self._staging is None:
            return True
        name = f"{key}.json"
        return (self._folder / name).is_file() if self._place is None else (self._place / name).exists()

    def publish(self) -> None:
        """Publish the receipts; call it once the session is closed. Earlier receipts with the same keys are replaced.

        Raises ``OSError`` if one of them cannot be written.
        """
        if self._staging is None:
            return
        staged = [path for path in self._staging.iterdir() if path.suffix == ".json" and path.stem in self._documents]
        if self._place is None:
            show = self._copy if self._keeps else self._move
            for receipt in staged:
                show(receipt)
        else:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                for _ in pool.map(self._put, staged):
                    pass
        if self._pointers is not None:
            self._pointers.point(self._documents)

    def _move(self, receipt: Path) -> None:
        receipt.replace(self._folder / receipt.name)

    def _copy(self, receipt: Path) -> None:
        # The staging folder may be on another file system.
        temporary = self._folder / f".{receipt.name}.{os.getpid()}"
        try:
            with temporary.open("wb") as file:
                file.write(receipt.read_bytes())
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._folder / receipt.name)
        finally:
            temporary.unlink(missing_ok=True)

    def _put(self, receipt: Path) -> None:
        if self._place is not None:
            (self._place / receipt.name).write(receipt.read_bytes())
