"""Pauses between attempts at an operation that may soon succeed."""

import time
from collections.abc import Iterator

__all__ = ["attempts", "pauses"]


def pauses(first: float = 0.1, longest: float = 10.0) -> Iterator[float]:
    """Yield the seconds to wait after each attempt, doubled every time up to ``longest``."""
    while True:
        yield first
        first = min(first * 2, longest)


def attempts(seconds: float) -> Iterator[None]:
    """Yield once for each attempt within ``seconds``, with pauses of at most 2 s between; the last is at the end."""
    until = time.monotonic() + seconds
    yield
    for pause in pauses(longest=2.0):
        left = until - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(pause, left))
        yield
