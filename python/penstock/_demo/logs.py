"""Ship logs with Lumberjack into a spool while the documents are processed."""

import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock._positions import Positions
from penstock._shipping import follow_files
from penstock.errors import LumberjackError
from penstock.lumberjack import Receiver, Sender

__all__ = ["LogShipping"]

# The seconds in which the last lines can be sent and acknowledged.
_LAST = 10.0


class LogShipping:
    """Follows files like ``penstock lumberjack send --follow``, and sends them to its own receiver with a spool."""

    def __init__(self, files: list[Path], spool: Path, positions: Path) -> None:
        """Start to follow the files, which may not exist yet."""
        self.acknowledged: int = 0
        """The number of events that are durable in the spool; set at the end."""
        self.failed: LumberjackError | None = None
        """The error that has ended the shipping early, if any."""
        self._receiver = Receiver(spool=spool)
        self._sender = Sender(self._receiver.address, window=256, retry=_LAST)
        self._told = threading.Event()
        self._thread = threading.Thread(
            target=self._follow, args=(files, Positions(positions)), name="penstock-logs", daemon=True
        )
        self._thread.start()

    def _follow(self, files: list[Path], positions: Positions) -> None:
        try:
            follow_files(self._sender, files, positions, self._told.wait)
        except LumberjackError as error:
            self.failed = error

    def __enter__(self) -> Self:
        """Return the object itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Send the lines written so far, and stop."""
        self._told.set()
        self._thread.join()
        self._receiver.close(_LAST)
        self.acknowledged = self._receiver.counters.acknowledged
