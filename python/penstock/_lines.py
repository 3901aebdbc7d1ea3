"""Whole lines out of what is read, none of them larger than a receiver takes."""

import json
import logging
from collections.abc import Callable

__all__ = ["Lines"]

_LOG = logging.getLogger("penstock.lumberjack")

# Receivers take 16 MiB of JSON (decision 7); the names of host and file need some of it.
_MOST = (16 << 20) - (64 << 10)
# Of these bytes each may become six of JSON, and it still fits.
_PIECE = 2 << 20

Piece = tuple[bytes, int]
"""Bytes to be sent, whole lines or a piece of one, and where they begin."""


class Lines:
    r"""Cuts what is read at the end of its last whole line; a line that no receiver would take is sent in pieces.

    >>> lines = Lines(0)
    >>> lines.push(b"one\ntw"), lines.push(b"o\n"), lines.rest()
    ([(b'one\n', 0)], [(b'two\n', 4)], [])
    """

    def __init__(self, offset: int, note: Callable[[int], None] | None = None) -> None:
        """Begin at an offset; ``note`` hears of each line that is cut, by its offset."""
        self._open = bytearray()
        self._note = note
        self.offset = offset
        """Where the line that is not whole begins."""

    @property
    def end(self) -> int:
        """Where the next bytes belong."""
        return self.offset + len(self._open)

    def push(self, data: bytes) -> list[Piece]:
        """Take what was read; give the lines that are whole."""
        before = len(self._open)
        self._open += data
        end = data.rfind(b"\n") + 1
        if end:
            return self._take(before + end)
        # A writer that never ends its line must not take all memory.
        return self._pieces(len(self._open), _PIECE) if len(self._open) > _MOST else []

    def rest(self) -> list[Piece]:
        """Give what is left, though no line ends there."""
        return self._take(len(self._open))

    def _take(self, end: int) -> list[Piece]:
        """Give everything up to an end. Bytes come 1 MiB at a time, so that no line but the first can be too long."""
        first = self._open.find(b"\n", 0, end) + 1 or end
        pieces = [] if first <= _PIECE or _fits(bytes(self._open[:first])) else self._pieces(first)
        end -= sum(len(piece) for piece, _ in pieces)
        return [*pieces, self._cut(end)] if end else pieces

    def _pieces(self, end: int, left: int = 0) -> list[Piece]:
        """Cut the first line up to an end, never in the midst of a character, until no more than so much is left."""
        if self._note is not None:
            self._note(self.offset)
        pieces = []
        while end > left:
            size = end if end <= _PIECE else self._edge(_PIECE)
            pieces.append(self._cut(size))
            end -= size
        return pieces

    def _edge(self, size: int) -> int:
        """Give a character's edge near a size; not behind a carriage return, which would be taken for the line's."""
        edges = (at for at in range(size, max(size - 4, 0), -1) if self._open[at] & 0xC0 != 0x80)
        return next((at for at in edges if self._open[at - 1] != ord("\r")), size)

    def _cut(self, size: int) -> Piece:
        piece = bytes(self._open[:size]), self.offset
        del self._open[:size]
        self.offset += size
        return piece


def _fits(line: bytes) -> bool:
    """Say whether a receiver takes a line as one event: the object that it is, or the string that it becomes."""
    if len(line) > _MOST:
        return False
    text = line.decode("utf-8", "backslashreplace")
    if len(json.dumps(text, ensure_ascii=False).encode()) <= _MOST:
        return True
    try:
        return isinstance(json.loads(line.decode(), parse_constant=_refuse), dict)
    except (ValueError, RecursionError):
        return False


def _refuse(constant: str) -> None:
    raise ValueError(constant)
