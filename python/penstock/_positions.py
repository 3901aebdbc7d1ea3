"""The positions up to which files have been sent, kept on disk."""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from penstock.errors import LumberjackError

__all__ = ["HEAD", "Place", "Positions"]

HEAD = 1_024
"""The most bytes at the beginning of a file by which it is recognized."""


@dataclass(slots=True, eq=False)
class Place:
    """The acknowledged position in a file. Names change and inodes are reused, so it also identifies the beginning."""

    device: int
    inode: int
    offset: int = 0
    length: int = 0
    """The number of bytes at the beginning that ``digest`` covers."""
    digest: str = ""
    """The SHA-256 of the beginning, in hex; empty for none."""
    ignored: bool = False
    """Whether the file existed under a rotated name before the name was followed for the first time."""
    read: int = field(default=0, repr=False)
    """The position up to which this process has read the file; not kept on disk."""

    @property
    def reached(self) -> int:
        """The position up to which nothing has to be read again."""
        return max(self.offset, self.read)

    @property
    def identity(self) -> tuple[int, int]:
        """The device and the inode, which identify the file as long as it exists."""
        return self.device, self.inode

    def learn(self, head: bytes) -> None:
        """Remember the beginning of the file."""
        self.length, self.digest = len(head), sha256(head).hexdigest()

    def begins(self, head: bytes) -> bool:
        """Return whether a file with this beginning, of up to `HEAD` bytes, may be this one."""
        return self.length == 0 or (len(head) >= self.length and sha256(head[: self.length]).hexdigest() == self.digest)


class Positions:
    """The places of files by the names that are followed, in a JSON file that is replaced atomically.

    Several processes may share the file: each replaces the names that it follows, and keeps the others.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     Positions(Path(folder, "kept")).keep({"/a": [Place(1, 2, 3)]})
    ...     Positions(Path(folder, "kept")).keep({"/b": [Place(1, 3, 4)]})
    ...     Positions(Path(folder, "kept"))["/a"]
    [Place(device=1, inode=2, offset=3, length=0, digest='', ignored=False)]
    """

    def __init__(self, path: Path) -> None:
        """Read the file if it exists.

        Raises:
            LumberjackError: The file is not a file of positions.
        """
        self._path = path
        self._kept = self._read()

    def __getitem__(self, name: str) -> list[Place]:
        """Return the places of a name: first the file that has it now, then those that had it."""
        return self._kept.get(name, [])

    def keep(self, places: Mapping[str, Sequence[Place]]) -> None:
        """Make the places of some names durable. The first place of each name is the file that has it now."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked():
            self._kept = self._read() | {name: list(of_name) for name, of_name in places.items()}
            files = {name: _entry(*of_name) for name, of_name in self._kept.items() if of_name}
            other = self._path.with_name(f"{self._path.name}.new")
            with other.open("w", encoding="utf-8") as file:
                json.dump({"files": files}, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            other.replace(self._path)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Exclude other processes that keep their places in the same file."""
        with self._path.with_name(f"{self._path.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read(self) -> dict[str, list[Place]]:
        try:
            kept = json.loads(self._path.read_text(encoding="utf-8"))
            files = kept["files"].items()
            return {name: [_place(entry), *map(_place, entry.get("rotated", []))] for name, entry in files}
        except FileNotFoundError:
            return {}
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            problem = f"{self._path} is not a file of positions ({type(error).__name__}: {error})"
            raise LumberjackError(f"{problem}; remove it to send files from their beginning", "io") from None


def _entry(place: Place, *rotated: Place) -> dict[str, Any]:
    fields = {name: getattr(place, name) for name in ("device", "inode", "offset", "length", "digest", "ignored")}
    return {**fields, "rotated": [_entry(each) for each in rotated]} if rotated else fields


def _place(entry: dict[str, Any]) -> Place:
    numbers: list[Any] = [entry["device"], entry["inode"], entry["offset"], entry.get("length", 0)]
    digest: Any = entry.get("digest", "")
    if not all(type(number) is int and number >= 0 for number in numbers) or not isinstance(digest, str):
        raise ValueError("device, inode, offset and length must be non-negative numbers, and digest a string")
    device, inode, offset, length = numbers
    return Place(device, inode, offset, length, digest, entry.get("ignored") is True)
