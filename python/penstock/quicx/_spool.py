"""Payloads that are too large for the queue: files or objects that producers and workers share, sent by reference.

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
        """Take a folder, which is made if need be, or a URI with the options of its store; None for none."""
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
        """Give the payload, or, where it is too large or looks like one, a reference to a file that has it.

        The file's name is random, or the task's key, so that a task that is submitted again has one file. Whether a
        file was made that was not there before is said too. It is there after a loss of power once `settle` was called.
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
            raise QuicxError(f"the payload cannot be put into the spool: {error}", "io") from None
        fields = {"file": name, "bytes": len(payload), "sha256": digest}
        return _MARK + json.dumps(fields).encode(), before is None

    def settle(self) -> None:
        """Have the names of what was put there on the disk. A store has them when it has taken an object."""
        if isinstance(self.folder, Path):
            try:
                _sync(self.folder)
            except OSError as error:
                raise QuicxError(f"the payload cannot be put into the spool: {error}", "io") from None

    def _digest(self, name: str) -> str | None:
        """What lies there by this name; None for nothing."""
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
        """Give the payload itself.

        Raises:
            QuicxError: The file that it refers to is gone, or is another one.
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
        """Remove the file, if the payload is a reference: its task is over."""
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
        """Remove the payloads that were put there so many seconds ago or earlier; give how many there were.

        Raises:
            QuicxError: One cannot be listed or removed.
        """
        before = time.time() - older_than
        try:
            if isinstance(self.folder, Place):
                return self._purge_store(self.folder, before)
            # What a producer had begun to write when it died goes too.
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
    """The payloads of one submit as the daemon gets them, and the files that were made for them."""

    spool: Spool | None
    payloads: list[bytes]
    made: Sequence[bool]

    def refused(self, error: Exception) -> None:
        """Remove the files of tasks that the daemon has not taken, as far as an error of the submit says so."""
        # Of an argument of another type nothing was sent; of anything else it is open, and the files stay.
        if not isinstance(error, QuicxError | TypeError | ValueError):
            return
        taken: Sequence[int] = ()
        if isinstance(error, QuicxError):
            if error.kind in {"io", "deadline"}:
                return
            taken = error.accepted
        self._drop(at for at in range(len(self.payloads)) if at >= len(taken) or not taken[at])

    def doubtful(self, ids: Sequence[int], keys: Sequence[bytes] | None) -> list[int]:
        """Give the tasks with keys for which files were made: one of them may have been done before, and needs none."""
        return [] if keys is None else [task for task, made in zip(ids, self.made, strict=False) if made]

    def done_before(self, ids: Sequence[int], done: Iterable[int]) -> None:
        """Remove the files of tasks that were done before they were submitted once more."""
        done = set(done)
        self._drop(at for at, task in enumerate(ids) if task in done)

    def give_up(self) -> None:
        """Remove all files: nothing was submitted."""
        self._drop(range(len(self.payloads)))

    def _drop(self, places: Iterable[int]) -> None:
        if self.spool is None:
            return
        for at in places:
            try:
                if self.made[at]:
                    self.spool.drop(self.payloads[at])
            except OSError as stays:
                _log.warning("a payload that was not taken stays in the spool: %s", stays)


def spooled(spool: Spool | None, payloads: Iterable[bytes], keys: Sequence[bytes] | None = None) -> Spooled:
    """Put payloads that are too large into a spool, if there is one. Where one cannot be put there, none is left."""
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
    """Give the payload of a task itself, for a worker with this spool, or with none.

    Raises:
        QuicxError: What it refers to cannot be read, or there is no spool to read it from.
    """
    if spool is not None:
        return spool.get(payload)
    try:
        refers = _reference(payload) is not None
    except QuicxError:
        # Of somebody who has no spool either.
        return payload
    if refers:
        raise QuicxError(
            "the payload lies in the producer's spool, and this worker has none: give it the same one, by its option "
            "spool",
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
    """Remove old payloads from a spool; give how many there were.

    A payload goes when its task is done; that of a task that failed or was dropped stays.

    Args:
        spool: The folder, or the URI, of the producers' ``spool``.
        older_than: Seconds since a payload was put there, by the wall clock: more than any task waits.
        storage: As for `Producer`.

    Raises:
        QuicxError: Of kind "misuse" where there is no such folder, "io" where a payload cannot be removed.
    """
    if not is_uri(str(spool)) and not Path(spool).is_dir():
        raise QuicxError(f"{spool} is no folder", "misuse")
    found = Spool.at(spool, storage=storage)
    return 0 if found is None else found.purge(older_than)


def _modified(path: Path) -> float:
    """When it was written; one that has gone meanwhile is new."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return inf


def _reference(payload: bytes) -> tuple[str, int, str] | None:
    """Read a reference. Its name is one that we make, so it points nowhere else."""
    if not payload.startswith(_MARK):
        return None
    try:
        fields = json.loads(payload[len(_MARK) :])
        name, size, digest = str(fields["file"]), int(fields["bytes"]), str(fields["sha256"])
    except (ValueError, KeyError, TypeError):
        raise QuicxError("the payload is no reference that can be read", "malformed") from None
    if _NAME.fullmatch(name) is None:
        raise QuicxError(f"the payload refers to {name!r}, which is no file of a spool", "malformed")
    return name, size, digest
