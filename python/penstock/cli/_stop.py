"""The handling of signals that stop a server."""

import signal
import time
from queue import Empty, SimpleQueue

__all__ = ["Stop"]

_LONGEST = 0.5
"""The longest single wait, in seconds."""


class Stop:
    """A wait that SIGTERM or SIGINT ends; a second signal of the same kind ends the process immediately."""

    def __init__(self) -> None:
        """Handle the signals from now on."""
        # The only queue to which a signal handler may add an item while it interrupts the wait itself.
        self._signals: SimpleQueue[int] = SimpleQueue()
        self.is_set: bool = False
        """Whether the stop was requested."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        self.is_set = True
        self._signals.put(number)

    def tell(self) -> None:
        """Request the stop without a signal."""
        self.is_set = True
        self._signals.put(0)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the stop is requested, at most ``seconds``; return whether it was."""
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            # A signal that arrives between Python's last check for signals and the wait does not interrupt the wait,
            # and is handled only when it ends. So no wait is long.
            left = _LONGEST if end is None else min(_LONGEST, end - time.monotonic())
            try:
                self._signals.get(timeout=max(left, 0.0))
            except Empty:
                if end is not None and time.monotonic() >= end:
                    return False
            else:
                return True
