"""Logs, shipped by Lumberjack into a spool while the documents run."""

import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock._positions import Positions
from penstock._shipping import follow_files
from penstock.errors import LumberjackError
from penstock.lumberjack import Receiver, Sender

__all__ = ["LogShipping"]

# Seconds for what was written last.
_LAST = 10.0


class LogShipping:
    """Follows files as ``penstock lumberjack send --follow`` does, to a receiver with a spool of its own."""

    def __init__(self, files: list[Path], spool: Path, positions: Path) -> None:
        """Begin. Files that are not there yet are waited for."""
        self.acknowledged: int = 0
        """Events that were durable in the spool, once it has ended."""
        self.failed: LumberjackError | None = None
        """Why it ended before its time, if it did."""
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
        """Give itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Send what is there by now, and end."""
        self._told.set()
        self._thread.join()
        self._receiver.close(_LAST)
        self.acknowledged = self._receiver.counters.acknowledged
