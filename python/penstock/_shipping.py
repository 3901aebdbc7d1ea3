"""Lines of files, and of standard input, given to a sender; and how far files have been sent, kept on disk."""

import json
import os
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from penstock.lumberjack import Sender

__all__ = ["Positions", "follow_files", "send_files"]

_READ = 1 << 20
# A line that is longer is cut: a writer that never ends its line must not take all memory.
_LONGEST = 8 << 20
_POLL = 0.25
# Seconds for the last of it, once told to stop.
_LAST = 1.0


class _Told(Protocol):
    @property
    def is_set(self) -> bool: ...


def send_files(sender: Sender, files: Iterable[Path], stop: _Told) -> int:
    """Send the lines of files, or of standard input where there are none; give how many events are acknowledged.

    It waits for the acknowledgements, unless it is told to stop.
    """
    host = socket.gethostname()
    for path in files:
        with path.open("rb") as file:
            _send_all(sender, file, host, str(path.absolute()), stop)
    if not files:
        # Its buffer would wait for more than is there.
        _send_all(sender, _StandardInput(stop), host, None, stop)
    while not stop.is_set and sender.try_flush(_POLL) is False:
        pass
    acknowledged = sender.acknowledged
    if stop.is_set:
        sender.abandon()
    else:
        sender.close()
    return acknowledged


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _StandardInput:
    """Standard input, whose end is not waited for once it is told to stop."""

    def __init__(self, stop: _Told) -> None:
        self._stop = stop

    def read(self, size: int, /) -> bytes:
        descriptor = sys.stdin.fileno()
        while not self._stop.is_set:
            if select.select([descriptor], [], [], _POLL)[0]:
                return os.read(descriptor, size)
        return b""


def _send_all(sender: Sender, file: _Readable, host: str, path: str | None, stop: _Told) -> None:
    lines = _Lines(0)
    while not stop.is_set and (octets := file.read(_READ)):
        text, offset = lines.push(octets)
        if text:
            sender.send_lines(text, host=host, path=path, offset=offset, stop=lambda: stop.is_set)
    text, offset = lines.rest()
    if text and not stop.is_set:
        sender.send_lines(text, host=host, path=path, offset=offset, stop=lambda: stop.is_set)


class _Lines:
    """Cuts what is read at the end of its last whole line."""

    def __init__(self, offset: int) -> None:
        self._open = bytearray()
        self.offset = offset
        """Where the line that is not whole begins."""

    def push(self, octets: bytes) -> tuple[bytes, int]:
        """Give whole lines, and where they begin."""
        self._open += octets
        end = self._open.rfind(b"\n") + 1
        if end == 0 and len(self._open) > _LONGEST:
            end = len(self._open)
        return self._take(end)

    def rest(self) -> tuple[bytes, int]:
        """Give what is left, though no line ends there."""
        return self._take(len(self._open))

    def _take(self, end: int) -> tuple[bytes, int]:
        text, offset = bytes(self._open[:end]), self.offset
        del self._open[:end]
        self.offset += end
        return text, offset


@dataclass(frozen=True, slots=True)
class _Place:
    """How far a file was sent. Files are known by device and inode: their names change."""

    device: int
    inode: int
    offset: int


class Positions:
    """How far files were acknowledged, in a file of JSON that is replaced as a whole."""

    def __init__(self, path: Path) -> None:
        """Read it, if it is there."""
        self._path = path
        self._places: dict[str, _Place] = {}
        if path.exists():
            kept = json.loads(path.read_text(encoding="utf-8"))
            self._places = {name: _Place(**place) for name, place in kept["files"].items()}

    def __getitem__(self, name: str) -> _Place | None:
        """Give the place in a file."""
        return self._places.get(name)

    def keep(self, places: dict[str, _Place]) -> None:
        """Make it durable."""
        self._places |= places
        self._path.parent.mkdir(parents=True, exist_ok=True)
        other = self._path.with_name(f"{self._path.name}.new")
        fields = ("device", "inode", "offset")
        content = {"files": {name: {f: getattr(place, f) for f in fields} for name, place in self._places.items()}}
        with other.open("w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        other.replace(self._path)


class _Followed:
    """A file that grows, is rotated and truncated."""

    def __init__(self, path: Path, place: _Place | None) -> None:
        self.name = str(path.absolute())
        self._path = path.absolute()
        self._file: BinaryIO | None = None
        self._lines = _Lines(0)
        self._identity = (0, 0)
        self._resume = place

    def place(self) -> _Place:
        return _Place(*self._identity, self._lines.offset)

    def read(self) -> tuple[bytes, int] | None:
        """Give whole lines that have come, and where they begin; None if there is nothing new."""
        if self._file is None and not self._open():
            return None
        while self._file is not None:
            self._notice_truncation(self._file)
            octets = self._file.read(_READ)
            if octets:
                text, offset = self._lines.push(octets)
                if text:
                    return text, offset
                continue
            if not self._was_rotated():
                return None
            # Nothing more comes into the old one: what is open in it is its last line.
            text, offset = self._lines.rest()
            self._file.close()
            self._file = None
            self._open()
            if text:
                return text, offset
        return None

    def _open(self) -> bool:
        resume, self._resume = self._resume, None
        candidates = [self._path]
        if resume is not None:
            candidates = [*self._rotated(resume), self._path]
        for path in candidates:
            try:
                file = path.open("rb")
            except FileNotFoundError:
                continue
            status = os.fstat(file.fileno())
            self._identity = (status.st_dev, status.st_ino)
            same = resume is not None and self._identity == (resume.device, resume.inode)
            start = resume.offset if same and resume is not None and status.st_size >= resume.offset else 0
            file.seek(start)
            self._file, self._lines = file, _Lines(start)
            return True
        self._resume = resume
        return False

    def _rotated(self, place: _Place) -> list[Path]:
        """Find the file that was read last, should it have another name by now."""
        for path in sorted(self._path.parent.glob(f"{self._path.name}*")):
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            if (status.st_dev, status.st_ino) == (place.device, place.inode):
                return [path]
        return []

    def _notice_truncation(self, file: BinaryIO) -> None:
        if os.fstat(file.fileno()).st_size < file.tell():
            file.seek(0)
            self._lines = _Lines(0)

    def _was_rotated(self) -> bool:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return False
        return (status.st_dev, status.st_ino) != self._identity

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def follow_files(sender: Sender, files: Iterable[Path], positions: Positions, wait: Callable[[float], bool]) -> None:
    """Send what is in files and what is appended to them, until told to stop; keep on disk how far it is acknowledged.

    Whatever was not acknowledged then is sent again by the next run.
    """
    host = socket.gethostname()
    followed = [_Followed(path, positions[str(path.absolute())]) for path in files]
    given: deque[tuple[int, str, _Place]] = deque()
    told = False

    def is_told() -> bool:
        nonlocal told
        told = told or wait(0)
        return told

    def keep() -> None:
        acknowledged, places = sender.acknowledged, {}
        while given and given[0][0] <= acknowledged:
            _, name, place = given.popleft()
            places[name] = place
        if places:
            positions.keep(places)

    def send_some(stop: Callable[[], bool]) -> bool:
        """Send what is there of each file, a piece of each; say whether there was something."""
        some = False
        for file in followed:
            if (found := file.read()) is not None:
                some = True
                text, offset = found
                total = sender.send_lines(text, host=host, path=file.name, offset=offset, stop=stop)
                if total is not None:
                    given.append((total, file.name, file.place()))
        return some

    try:
        while not is_told():
            idle = not send_some(is_told)
            keep()
            if idle:
                told = told or wait(_POLL)
        # What was written before it was told goes too, if somebody takes it.
        until = time.monotonic() + _LAST
        while send_some(lambda: time.monotonic() > until) and time.monotonic() < until:
            pass
        sender.try_flush(_LAST)
        keep()
    finally:
        sender.abandon()
        for file in followed:
            file.close()
