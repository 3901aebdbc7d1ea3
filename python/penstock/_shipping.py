"""Send the lines of files, or of standard input, with a Lumberjack sender."""

import logging
import os
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from penstock._following import Followed, Found
from penstock._lines import Lines, Piece
from penstock._positions import Positions
from penstock.errors import LumberjackError
from penstock.lumberjack import Sender

__all__ = ["follow_files", "send_files"]

_LOG = logging.getLogger("penstock.lumberjack")

_READ = 1 << 20
_POLL = 0.25
# The seconds in which to send the last lines after the stop.
_LAST = 1.0


class _Told(Protocol):
    @property
    def is_set(self) -> bool: ...


def send_files(sender: Sender, files: Iterable[Path], stop: _Told) -> int:
    """Send the lines of files, or of standard input without files, and wait for the acknowledgements.

    ``stop`` ends the sending and the wait. Return the number of acknowledged events.
    """
    host = socket.gethostname()
    for path in files:
        with path.open("rb") as file:
            _send_all(sender, file, host, str(path.absolute()), stop)
    if not files:
        # Read without Python's buffer, which would wait for more data than is available.
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
    """Standard input, which ends when ``stop`` is set."""

    def __init__(self, stop: _Told) -> None:
        # It is None if it was closed before Python started.
        if sys.stdin is None or sys.stdin.closed:
            raise LumberjackError("standard input is closed: use --file, or provide input", "io")
        self._stop = stop

    def read(self, size: int, /) -> bytes:
        descriptor = sys.stdin.fileno()
        while not self._stop.is_set:
            if select.select([descriptor], [], [], _POLL)[0]:
                return os.read(descriptor, size)
        return b""


def _send_all(sender: Sender, file: _Readable, host: str, path: str | None, stop: _Told) -> None:
    lines = Lines(0, partial(_note, path or "standard input"))
    while not stop.is_set and (data := file.read(_READ)):
        _send_pieces(sender, lines.push(data), host, path, stop)
    _send_pieces(sender, lines.rest(), host, path, stop)


def _send_pieces(sender: Sender, pieces: list[Piece], host: str, path: str | None, stop: _Told) -> None:
    for text, offset in pieces:
        if not stop.is_set:
            sender.send_lines(text, host=host, path=path, offset=offset, stop=lambda: stop.is_set)


def _note(name: str, offset: int) -> None:
    _LOG.warning("%s: the line at byte %d is too long for one event and is sent in pieces", name, offset)


def follow_files(sender: Sender, files: Sequence[Path], positions: Positions, wait: Callable[[float], bool]) -> None:
    """Send the lines of files and the lines appended to them, and keep the acknowledged positions on disk.

    ``wait`` waits for a number of seconds, and returns True to stop. The next run sends again what was not
    acknowledged.
    """
    host = socket.gethostname()
    followed = [Followed(path, positions[str(path.absolute())], files) for path in files]
    given: deque[tuple[int, Followed, Found]] = deque()
    told = False

    def is_told() -> bool:
        nonlocal told
        # Opens files that are rotated while no receiver accepts events, before they are compressed or removed.
        for file in followed:
            file.look()
        told = told or wait(0)
        return told

    def keep() -> None:
        acknowledged = sender.acknowledged
        changed = [file for file in followed if file.changed]
        while given and given[0][0] <= acknowledged:
            _, file, found = given.popleft()
            found.place.offset = found.end
            changed.append(file)
        if changed:
            positions.keep({file.name: file.places() for file in changed})

    def send_some(stop: Callable[[], bool]) -> bool:
        """Send one piece of each file that has new lines, and return whether there was any."""
        some = False
        for file in followed:
            if (found := file.read()) is not None:
                some = True
                total = sender.send_lines(found.text, host=host, path=file.name, offset=found.offset, stop=stop)
                if total is not None:
                    given.append((total, file, found))
        return some

    try:
        while not is_told():
            idle = not send_some(is_told)
            keep()
            if idle:
                told = told or wait(_POLL)
        # Lines that were written before the stop are sent too, if a receiver accepts them in time.
        until = time.monotonic() + _LAST
        while send_some(lambda: time.monotonic() > until) and time.monotonic() < until:
            pass
        sender.try_flush(_LAST)
        keep()
    finally:
        sender.abandon()
        for file in followed:
            file.close()
