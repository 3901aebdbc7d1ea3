"""Read each line of files once while they grow, and are renamed, copied and truncated.

The file that has the name is read as it grows. A renamed file is read until it is quiet, because its writer learns late
of the rename. Files that had the name in between, unnoticed, are found in the folder by names that begin with it. If a
file was truncated, the rest of its old content is searched for in a copy (copytruncate).
"""

import logging
import os
import re
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from penstock._lines import Lines, Piece
from penstock._positions import HEAD, Place

__all__ = ["GRACE", "Followed", "Found"]

_LOG = logging.getLogger("penstock.lumberjack")

GRACE = 5.0
"""The seconds without new data after which a renamed file is finished."""
_READ = 1 << 20
# Suffixes that rotation adds: .1, -20261122, .2026-11-22_10.log, .old; but not .err, .lock or -audit.log.
_ROTATED = re.compile(r"[._-](old\b|.*\d)", re.IGNORECASE)
_COMPRESSED = re.compile(r"\.(gz|bz2|xz|zst|lz4|lzma|lzo|br|Z|zip|7z)(\W|$)|~$")


@dataclass(frozen=True, slots=True)
class Found:
    """Lines to be sent, and the place to update once they are acknowledged."""

    text: bytes
    offset: int
    place: Place

    @property
    def end(self) -> int:
        """The position in the file after these lines."""
        return self.offset + len(self.text)


class _Truncated(Exception):
    """A file no longer has the content that was read from it."""


class _Reader:
    """A reader of one open file."""

    def __init__(self, file: BinaryIO, place: Place, name: str) -> None:
        self.place = place
        self.since = time.monotonic()
        """When new data was last read, or the file lost its name."""
        self._file: BinaryIO | None = file
        self._lines = Lines(place.reached, self._note)
        self._name = name
        self._head = os.pread(file.fileno(), place.length, 0)
        self._ready: deque[Piece] = deque()

    def _note(self, offset: int) -> None:
        _LOG.warning("%s: the line at byte %d is too long for one event and is sent in pieces", self._name, offset)

    @property
    def end(self) -> int:
        """The position up to which the file was read."""
        return self._lines.end

    def read(self) -> Piece | None:
        """Return the next lines; None if there are none."""
        if not self._ready and self._file is not None:
            data = os.pread(self._file.fileno(), _READ, self.end)
            # Checked after the read: if the file is still the same now, it was during the read.
            head = self._check()
            if data:
                self.since = time.monotonic()
                self._ready.extend(self._lines.push(data))
                self.place.read = self.end
                if len(self._head) < HEAD:
                    self._head = head[: self.end]
                    self.place.learn(self._head)
        return self._ready.popleft() if self._ready else None

    def _check(self) -> bytes:
        """Return the beginning of the file; raise `_Truncated` if it no longer has what was read."""
        if self._file is None:
            return b""
        head = os.pread(self._file.fileno(), HEAD, 0)
        if os.fstat(self._file.fileno()).st_size < self.end or not head.startswith(self._head):
            raise _Truncated
        return head

    def is_same(self) -> bool:
        """Return whether the file still has the content that was read."""
        try:
            self._check()
        except _Truncated:
            return False
        return True

    def is_copied_in(self, file: BinaryIO) -> bool:
        """Return whether another file has the same beginning, and the same last bytes at the position read so far."""
        if self._file is None or self.end < HEAD:
            return False
        return all(
            os.pread(self._file.fileno(), HEAD, at) == os.pread(file.fileno(), HEAD, at) for at in (0, self.end - HEAD)
        )

    def is_done(self) -> bool:
        """Return whether the file is closed and all its lines were returned."""
        return self._file is None and not self._ready

    def move(self, file: BinaryIO) -> None:
        """Continue in a copy of the file."""
        self.close()
        self._file = file
        self.since = time.monotonic()

    def finish(self) -> None:
        """Treat the remaining bytes as the last line, and close the file."""
        self._ready.extend(self._lines.rest())
        self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


@dataclass(slots=True)
class _Candidate:
    """An open file in the folder that has or may have had the name."""

    path: Path
    file: BinaryIO
    head: bytes
    status: os.stat_result

    @property
    def identity(self) -> tuple[int, int]:
        return self.status.st_dev, self.status.st_ino


class Followed:
    """A followed name, with the files that have or had it."""

    def __init__(self, path: Path, places: Sequence[Place], others: Sequence[Path] = ()) -> None:
        """Continue at the given places. The names of ``others`` are followed separately."""
        self._path = path.absolute()
        self.name: str = str(self._path)
        self.changed: bool = False
        """Whether the places have changed since the last call of `places`."""
        self._others = frozenset(other.absolute().name for other in others if other.absolute() != self._path)
        self._known = list(places)
        self._current = places[0] if places else None
        self._readers: list[_Reader] = []
        self._refused: set[Path] = set()
        self._looked = False

    def places(self) -> list[Place]:
        """Return all places, first that of the file that has the name now."""
        self.changed = False
        return sorted(self._known, key=lambda place: place is not self._current)

    def read(self) -> Found | None:
        """Return lines of the oldest file that has new ones; None if none has."""
        self.look()
        for reader in list(self._readers):
            piece = self._read(reader)
            if piece is None and reader.place is not self._current and time.monotonic() - reader.since >= GRACE:
                reader.finish()
                piece = self._read(reader)
            if reader.is_done():
                self._readers.remove(reader)
            if piece is not None:
                return Found(*piece, reader.place)
        return None

    def _read(self, reader: _Reader) -> Piece | None:
        try:
            return reader.read()
        except _Truncated:
            self._scan()
            return None

    def look(self) -> None:
        """Check whether another file has the name now, or one was truncated; open new files. This is cheap."""
        try:
            status = self._path.stat()
            identity = (status.st_dev, status.st_ino)
        except FileNotFoundError:
            identity = None
        renamed = identity is not None and (self._current is None or identity != self._current.identity)
        # Scan again while a renamed file is still read, because a listing is not atomic while names change.
        lingering = any(reader.place is not self._current for reader in self._readers)
        if renamed or lingering or not self._looked or not all(reader.is_same() for reader in self._readers):
            self._scan()

    def close(self) -> None:
        """Close all files."""
        for reader in self._readers:
            reader.close()

    def _scan(self) -> None:
        """Compare the files in the folder with the known ones."""
        first, self._looked = not self._looked and not self._known, True
        candidates = list(self._candidates())
        used: set[int] = set()
        try:
            matched = [(candidate, self._match(candidate)) for candidate in candidates]
            present = [place for _, place in matched if place is not None]
            new = [candidate for candidate, place in matched if place is None]
            for candidate, place in matched:
                if place is not None and self._is_wanted(candidate, place):
                    used.add(self._open(candidate, place))
            for place in self._truncated(candidates, present):
                if (copy := _copy_of(place, new)) is not None:
                    used.add(self._move(place, copy))
                    new.remove(copy)
                    present.append(place)
            for candidate in new:
                # A copy of an open file: made before truncating it, or by a user. Its lines must not be sent twice.
                if candidate.path != self._path and any(r.is_copied_in(candidate.file) for r in self._readers):
                    continue
                ignored = first and candidate.path != self._path
                place = Place(*candidate.identity, candidate.status.st_size if ignored else 0, ignored=ignored)
                present.append(place)
                if ignored:
                    place.learn(candidate.head)
                else:
                    used.add(self._open(candidate, place))
        finally:
            for candidate in candidates:
                if id(candidate.file) not in used:
                    candidate.file.close()
        self._settle(candidates, present)

    def _settle(self, candidates: list["_Candidate"], present: list[Place]) -> None:
        """Store which files exist and which one has the name; finish the readers of truncated files without a copy."""
        for reader in self._readers:
            if reader.place not in present and not reader.is_same():
                reader.finish()
        known = [*present, *(reader.place for reader in self._readers if reader.place not in present)]
        before, owner = self._current, [c.identity for c in candidates if c.path == self._path]
        if owner:
            self._current = next((place for place in present if place.identity == owner[0]), None)
        if before is not self._current:
            for reader in self._readers:
                if reader.place is before:
                    reader.since = time.monotonic()
        self.changed = self.changed or known != self._known
        self._known = known

    def _match(self, candidate: "_Candidate") -> Place | None:
        """Return the place of a known file that still has the content that was read."""
        for place in self._known:
            same = place.identity == candidate.identity and place.begins(candidate.head)
            if same and (place.ignored or candidate.status.st_size >= place.reached):
                return place
        return None

    def _is_wanted(self, candidate: "_Candidate", place: Place) -> bool:
        """Return whether to open a file: the one that has the name, and those with more data than was read."""
        more = candidate.path == self._path or candidate.status.st_size > place.reached
        return more and not place.ignored and self._reader(place) is None

    def _truncated(self, candidates: list["_Candidate"], present: list[Place]) -> list[Place]:
        """Return the places of files that exist but have other content now."""
        there = {candidate.identity for candidate in candidates}
        return [p for p in self._known if p not in present and not p.ignored and p.identity in there]

    def _reader(self, place: Place) -> _Reader | None:
        return next((reader for reader in self._readers if reader.place is place), None)

    def _open(self, candidate: "_Candidate", place: Place) -> int:
        self._readers.append(_Reader(candidate.file, place, str(candidate.path)))
        return id(candidate.file)

    def _move(self, place: Place, copy: "_Candidate") -> int:
        """Continue in a copy of the file."""
        place.device, place.inode = copy.identity
        reader = self._reader(place)
        if reader is None:
            return self._open(copy, place)
        reader.move(copy.file)
        return id(copy.file)

    def _candidates(self) -> Iterator["_Candidate"]:
        """Open the file that has the name and those that may have had it, oldest first."""
        found: dict[tuple[int, int], _Candidate] = {}
        for path in [self._path, *self._siblings()]:
            try:
                file = path.open("rb", buffering=0)
            except FileNotFoundError:
                continue
            except OSError as error:
                if path == self._path:
                    raise
                if path not in self._refused:
                    _LOG.warning("%s may be a part of %s, and cannot be read: %s", path, self.name, error.strerror)
                self._refused.add(path)
                continue
            head = os.pread(file.fileno(), HEAD, 0)
            candidate = _Candidate(path, file, head, os.fstat(file.fileno()))
            if found.setdefault(candidate.identity, candidate) is not candidate:
                file.close()
        yield from sorted(found.values(), key=lambda each: (each.path == self._path, each.status.st_mtime_ns))

    def _siblings(self) -> list[Path]:
        name = self._path.name
        try:
            with os.scandir(self._path.parent) as entries:
                names = [
                    each.name for each in entries if each.name.startswith(name) and each.is_file(follow_symlinks=False)
                ]
        except OSError:
            return []
        names = [each for each in names if each != name and not _COMPRESSED.search(each)]
        # app.log.err.1 belongs to app.log.err, not to app.log.
        own = [each for each in names if not _ROTATED.match(each[len(name) :])]
        bases = {*own, *(other for other in self._others if other.startswith(name))}
        return [self._path.with_name(each) for each in names if not any(map(each.startswith, bases))]


def _copy_of(place: Place, candidates: list[_Candidate]) -> _Candidate | None:
    """Return the candidate that is a copy of what was read from a file, if any."""
    for candidate in candidates:
        another = candidate.identity != place.identity and candidate.status.st_size >= place.reached
        if another and place.length and place.begins(candidate.head):
            return candidate
    return None
