"""Payloads that are too large for the queue: files or objects that producers and workers share, sent by reference.

A reference is the payload ``penstock-file/1``, a line feed, and JSON with ``file``, ``bytes`` and ``sha256``.
"""

import hashlib
import json
import os
import re
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock._places import Place, is_uri
from penstock.errors import QuicxError
from penstock.quicx._options import PathLike

__all__ = ["Spool"]

_MARK = b"penstock-file/1\n"
_NAME = re.compile(r"[0-9a-f]{32}\.payload")


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
        path.mkdir(parents=True, exist_ok=True)
        return cls(path, above)

    def put(self, payload: bytes, key: bytes | None = None) -> bytes:
        """Give the payload, or, where it is too large or looks like one, a reference to a file that has it.

        The file's name is random, or the task's key, so that a task that is submitted again has one file.
        """
        if len(payload) <= self.above and not payload.startswith(_MARK):
            return payload
        name = f"{uuid.uuid4().hex if key is None else key.hex()}.payload"
        try:
            self._write(name, payload)
        except OSError as error:
            raise QuicxError(f"the payload cannot be put into the spool: {error}", "io") from None
        fields = {"file": name, "bytes": len(payload), "sha256": hashlib.sha256(payload).hexdigest()}
        return _MARK + json.dumps(fields).encode()

    def _write(self, name: str, payload: bytes) -> None:
        if isinstance(self.folder, Place):
            return (self.folder / name).write(payload)
        temporary = self.folder / f".{uuid.uuid4().hex}"
        with temporary.open("xb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(self.folder / name)
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
