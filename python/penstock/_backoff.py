"""Pauses between attempts at what may be possible soon."""

import time
from collections.abc import Iterator

__all__ = ["attempts", "pauses"]


def pauses(first: float = 0.1, longest: float = 10.0) -> Iterator[float]:
    """Give how many seconds to wait after each attempt: twice as many every time, up to the longest."""
    while True:
        yield first
        first = min(first * 2, longest)


def attempts(seconds: float) -> Iterator[None]:
    """Give turns for so many seconds, with pauses of at most 2 s between them; the last is when they are over."""
    until = time.monotonic() + seconds
    yield
    for pause in pauses(longest=2.0):
        left = until - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(pause, left))
        yield
