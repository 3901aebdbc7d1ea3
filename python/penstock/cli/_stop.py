"""How a server is told to stop."""

import signal
import time
from queue import Empty, SimpleQueue

__all__ = ["Stop"]

_LONGEST = 0.5
"""Seconds."""


class Stop:
    """SIGTERM and SIGINT end the wait; a second one ends the process where it is."""

    def __init__(self) -> None:
        """Take the signals from now on."""
        # Of all that can be waited for, this may be signalled from a handler that interrupts the wait itself.
        self._signals: SimpleQueue[int] = SimpleQueue()
        self.is_set: bool = False
        """Whether it was told."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        self.is_set = True
        self._signals.put(number)

    def tell(self) -> None:
        """End the wait without a signal."""
        self.is_set = True
        self._signals.put(0)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for a signal, at most so long; say whether one came."""
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            # A signal that comes between Python's last look for one and the wait does not interrupt it, and is handled
            # when it ends: so no wait is long.
            left = _LONGEST if end is None else min(_LONGEST, end - time.monotonic())
            try:
                self._signals.get(timeout=max(left, 0.0))
            except Empty:
                if end is not None and time.monotonic() >= end:
                    return False
            else:
                return True
