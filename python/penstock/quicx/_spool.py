"""Payloads that are too large for the queue: files or objects that producers and workers share by reference.

A reference is the payload ``penstock-file/1``, a line feed, and JSON with ``file``, ``bytes`` and ``sha256``.
"""

import hashlib
import json
import logging
import os
import re
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from math import inf
from pathlib import Path

from penstock._places import Place, is_uri
from penstock.errors import QuicxError
from penstock.quicx._options import PathLike

__all__ = ["Spool", "Spooled", "content_of", "purge_spool", "spooled"]

_log = logging.getLogger(__name__)

_MARK = b"penstock-file/1\n"
_NAME = re.compile(r"[0-9a-f]{32}\.payload")
_PART = re.compile(r"\.[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Spool:
    """A folder of payloads, or a prefix in an object store."""

    folder: Path | Place
    above: int

    @classmethod
    def at(
        cls, folder: PathLike | None, above: int = 3_072, storage: Mapping[str, str] | None = None
    ) -> "Spool | None":
        """Return the spool in a folder, which is created if missing, or at a URI in an object store; None for None."""
        if folder is None:
            return None
        if is_uri(str(folder)):
            try:
                return cls(Place.open(str(folder), storage), above)
            except (ValueError, OSError) as error:
                raise QuicxError(f"the spool: {error}", "misuse") from None
        path = Path(folder)
        if not path.is_dir():
            path.mkdir(parents=True, exist_ok=True)
            _sync(path.parent)
        return cls(path, above)

    def put(self, payload: bytes, key: bytes | None = None) -> tuple[bytes, bool]:
        """Return the payload, or a reference if it is too large or looks like one; and whether a new file was made.

        The file's name is the task's key, so that a task that is submitted again has one file, or else random. The file
        survives a power failure once `settle` was called.
        """
        if len(payload) <= self.above and not payload.startswith(_MARK):
            return payload, False
        name = f"{uuid.uuid4().hex if key is None else key.hex()}.payload"
        digest = hashlib.sha256(payload).hexdigest()
        try:
            before = None if key is None else self._digest(name)
            if before != digest:
                self._write(name, payload)
        except OSError as error:
            raise QuicxError(f"the payload cannot be stored in the spool: {error}", "io") from None
        fields = {"file": name, "bytes": len(payload), "sha256": digest}
        return _MARK + json.dumps(fields).encode(), before is None

    def settle(self) -> None:
        """Sync the folder, so that the names of new files are durable. An object store needs no such step."""
        if isinstance(self.folder, Path):
            try:
                _sync(self.folder)
            except OSError as error:
                raise QuicxError(f"the payload cannot be stored in the spool: {error}", "io") from None

    def _digest(self, name: str) -> str | None:
        """Return the SHA-256 of the file with this name; None if there is none."""
        try:
            return hashlib.sha256(self._read(name)).hexdigest()
        except FileNotFoundError:
            return None

    def _write(self, name: str, payload: bytes) -> None:
        if isinstance(self.folder, Place):
            return (self.folder / name).write(payload)
        temporary = self.folder / f".{uuid.uuid4().hex}"
        try:
            with temporary.open("xb") as file:
                file.write(payload)
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(self.folder / name)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return None

    def _read(self, name: str) -> bytes:
        if isinstance(self.folder, Place):
            with (self.folder / name).open_file() as file:
                return bytes(file.read())
        return (self.folder / name).read_bytes()

    def get(self, payload: bytes) -> bytes:
        """Return the payload itself.

        Raises:
            QuicxError: If the file that it refers to is gone or has other content.
        """
        reference = _reference(payload)
        if reference is None:
            return payload
        name, size, digest = reference
        try:
            content = self._read(name)
        except OSError as error:
            raise QuicxError(f"the payload cannot be read: {error}", "io") from None
        if len(content) != size or hashlib.sha256(content).hexdigest() != digest:
            raise QuicxError(f"{name} is not the payload that was submitted", "malformed")
        return content

    def drop(self, payload: bytes) -> None:
        """Remove the file of a task that has ended, if the payload is a reference."""
        reference = _reference(payload)
        if reference is None:
            return
        if isinstance(self.folder, Place):
            place = self.folder / reference[0]
            with suppress(FileNotFoundError):
                place.filesystem.delete_file(place.path)
        else:
            (self.folder / reference[0]).unlink(missing_ok=True)

    def purge(self, older_than: float) -> int:
        """Remove the payloads that are older than this many seconds; return how many there were.

        Raises:
            QuicxError: If a payload cannot be listed or removed.
        """
        before = time.time() - older_than
        try:
            if isinstance(self.folder, Place):
                return self._purge_store(self.folder, before)
            # Also the partial files of producers that died while they wrote.
            found = [path for path in self.folder.iterdir() if _NAME.fullmatch(path.name) or _PART.fullmatch(path.name)]
            old = [path for path in found if _modified(path) < before]
            for path in old:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise QuicxError(f"the spool cannot be purged: {error}", "io") from None
        return len(old)

    @staticmethod
    def _purge_store(folder: Place, before: float) -> int:
        old = 0
        for info in folder.files(recursive=False):
            if _NAME.fullmatch(info.base_name) and info.mtime_ns is not None and info.mtime_ns / 1e9 < before:
                with suppress(FileNotFoundError):
                    folder.filesystem.delete_file(info.path)
                old += 1
        return old


@dataclass(frozen=True, slots=True)
class Spooled:
    """The payloads of one submit as they are sent to the daemon, and the files that were made for them."""

    spool: Spool | None
    payloads: list[bytes]
    made: Sequence[bool]

    def refused(self, error: Exception) -> None:
        """Remove the files of tasks that, by the error of the submit, the daemon has certainly not accepted."""
        # After TypeError and ValueError nothing was sent. After other exceptions that is unknown, and the files stay.
        if not isinstance(error, QuicxError | TypeError | ValueError):
            return
        taken: Sequence[int] = ()
        if isinstance(error, QuicxError):
            if error.kind in {"io", "deadline"}:
                return
            taken = error.accepted
        self._drop(at for at in range(len(self.payloads)) if at >= len(taken) or not taken[at])

    def doubtful(self, ids: Sequence[int], keys: Sequence[bytes] | None) -> list[int]:
        """Return the tasks with keys that got new files: those that were done before do not need them."""
        return [] if keys is None else [task for task, made in zip(ids, self.made, strict=False) if made]

    def done_before(self, ids: Sequence[int], done: Iterable[int]) -> None:
        """Remove the files of tasks that were already done when they were submitted again."""
        done = set(done)
        self._drop(at for at, task in enumerate(ids) if task in done)

    def give_up(self) -> None:
        """Remove all files, because nothing was submitted."""
        self._drop(range(len(self.payloads)))

    def _drop(self, places: Iterable[int]) -> None:
        if self.spool is None:
            return
        for at in places:
            try:
                if self.made[at]:
                    self.spool.drop(self.payloads[at])
            except OSError as stays:
                _log.warning("the payload of a rejected task stays in the spool: %s", stays)


def spooled(spool: Spool | None, payloads: Iterable[bytes], keys: Sequence[bytes] | None = None) -> Spooled:
    """Store the payloads that are too large in the spool, if there is one. If one cannot be stored, none remains."""
    contents = list(payloads)
    if spool is None:
        return Spooled(None, contents, ())
    found: list[bytes] = []
    made: list[bool] = []
    try:
        for payload, key in zip_longest(contents, keys or ()):
            reference, new = spool.put(payload, key)
            found.append(reference)
            made.append(new)
        if any(made):
            spool.settle()
    except Exception:
        Spooled(spool, found, made).give_up()
        raise
    return Spooled(spool, found, made)


def content_of(spool: Spool | None, payload: bytes) -> bytes:
    """Return the payload of a task itself, for a worker with this spool or with none.

    Raises:
        QuicxError: If its reference cannot be read, or the worker has no spool to read it from.
    """
    if spool is not None:
        return spool.get(payload)
    try:
        refers = _reference(payload) is not None
    except QuicxError:
        # Not a valid reference: the payload of a producer without a spool only looks like one.
        return payload
    if refers:
        raise QuicxError(
            "the payload is in the producer's spool, but this worker has none: set the same spool for the worker",
            "misuse",
        )
    return payload


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def purge_spool(spool: PathLike, older_than: float, *, storage: Mapping[str, str] | None = None) -> int:
    """Remove old payloads from a spool; return how many there were.

    A worker removes the payload of a task that is done; those of failed and dropped tasks stay until they are purged.

    Args:
        spool: The folder, or the URI, of the producers' ``spool``.
        older_than: The minimum age of a payload in seconds, by the wall clock; longer than any task may wait.
        storage: Options of the object store, as for `Producer`.

    Raises:
        QuicxError: Of kind "misuse" if there is no such folder, "io" if a payload cannot be removed.
    """
    if not is_uri(str(spool)) and not Path(spool).is_dir():
        raise QuicxError(f"{spool} is not a directory", "misuse")
    found = Spool.at(spool, storage=storage)
    return 0 if found is None else found.purge(older_than)


def _modified(path: Path) -> float:
    """Return the time of the last change; infinity if the file has been removed meanwhile."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return inf


def _reference(payload: bytes) -> tuple[str, int, str] | None:
    """Parse a reference; None if the payload is none. Only names that `Spool` makes are valid, so no other paths."""
    if not payload.startswith(_MARK):
        return None
    try:
        fields = json.loads(payload[len(_MARK) :])
        name, size, digest = str(fields["file"]), int(fields["bytes"]), str(fields["sha256"])
    except (ValueError, KeyError, TypeError):
        raise QuicxError("the payload is not a valid reference", "malformed") from None
    if _NAME.fullmatch(name) is None:
        raise QuicxError(f"the payload refers to {name!r}, which is not a file of a spool", "malformed")
    return name, size, digest
