"""Split data into whole lines, none of them larger than a receiver accepts."""

import json
import logging
from collections.abc import Callable

__all__ = ["Lines"]

_LOG = logging.getLogger("penstock.lumberjack")

# Receivers accept 16 MiB of JSON, of which the names of the host and the file need some.
_MOST = (16 << 20) - (64 << 10)
# A piece of this size fits even if JSON needs six bytes for each of its bytes.
_PIECE = 2 << 20

Piece = tuple[bytes, int]
"""Bytes to be sent (whole lines, or a piece of one) and their offset."""


class Lines:
    r"""Splits data at the end of its last whole line; a line that no receiver would accept is split into pieces.

    >>> lines = Lines(0)
    >>> lines.push(b"one\ntw"), lines.push(b"o\n"), lines.rest()
    ([(b'one\n', 0)], [(b'two\n', 4)], [])
    """

    def __init__(self, offset: int, note: Callable[[int], None] | None = None) -> None:
        """Start at an offset; ``note`` is called with the offset of each line that is split."""
        self._open = bytearray()
        self._note = note
        self.offset = offset
        """The offset of the line that is not complete yet."""

    @property
    def end(self) -> int:
        """The offset of the next bytes."""
        return self.offset + len(self._open)

    def push(self, data: bytes) -> list[Piece]:
        """Add data that was read, and return the lines that are complete."""
        before = len(self._open)
        self._open += data
        end = data.rfind(b"\n") + 1
        if end:
            return self._take(before + end)
        # A writer that never ends its line must not exhaust the memory.
        return self._pieces(len(self._open), _PIECE) if len(self._open) > _MOST else []

    def rest(self) -> list[Piece]:
        """Return the remaining bytes, although no line ends there."""
        return self._take(len(self._open))

    def _take(self, end: int) -> list[Piece]:
        """Return everything up to an end. Only the first line can be too long, since data arrives 1 MiB at a time."""
        first = self._open.find(b"\n", 0, end) + 1 or end
        pieces = [] if first <= _PIECE or _fits(bytes(self._open[:first])) else self._pieces(first)
        end -= sum(len(piece) for piece, _ in pieces)
        return [*pieces, self._cut(end)] if end else pieces

    def _pieces(self, end: int, left: int = 0) -> list[Piece]:
        """Split the first line up to ``end``, never inside a character, until at most ``left`` bytes remain."""
        if self._note is not None:
            self._note(self.offset)
        pieces = []
        while end > left:
            size = end if end <= _PIECE else self._edge(_PIECE)
            pieces.append(self._cut(size))
            end -= size
        return pieces

    def _edge(self, size: int) -> int:
        """Return a character boundary near a size, not after a carriage return, which would look like a line's end."""
        edges = (at for at in range(size, max(size - 4, 0), -1) if self._open[at] & 0xC0 != 0x80)
        return next((at for at in edges if self._open[at - 1] != ord("\r")), size)

    def _cut(self, size: int) -> Piece:
        piece = bytes(self._open[:size]), self.offset
        del self._open[:size]
        self.offset += size
        return piece


def _fits(line: bytes) -> bool:
    """Return whether a receiver accepts a line as one event: as the JSON object that it is, or as a string."""
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
