"""Lines of files, and of standard input, given to a sender."""

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
        # Python has none where it was closed before it began.
        if sys.stdin is None or sys.stdin.closed:
            raise LumberjackError("standard input is closed: give it something to read, or --file", "io")
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
    """Send what is in files and what is appended to them, until told to stop; keep on disk how far it is acknowledged.

    Whatever was not acknowledged then is sent again by the next run.
    """
    host = socket.gethostname()
    followed = [Followed(path, positions[str(path.absolute())], files) for path in files]
    given: deque[tuple[int, Followed, Found]] = deque()
    told = False

    def is_told() -> bool:
        nonlocal told
        # What is rotated while nobody takes events is open before it may be compressed or removed.
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
        """Send what is there of each file, a piece of each; say whether there was something."""
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
