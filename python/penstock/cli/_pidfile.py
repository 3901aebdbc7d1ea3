"""``--pidfile``: a file with the process's ID, which only one process has at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from penstock.errors import QuicxError

__all__ = ["pidfile"]


@contextmanager
def pidfile(path: Path | None) -> Iterator[None]:
    """Keep the process's ID in a locked file during the block.

    Raises:
        QuicxError: Another running process has the file. The lock of a killed process does not count.
    """
    if path is None:
        yield
        return
    with _take(path) as file:
        try:
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            yield
        finally:
            # Another process may have replaced the file.
            if _is_at(file, path):
                path.unlink()


def _take(path: Path) -> TextIO:
    """Open and lock the file, which is created if necessary."""
    while True:
        file = path.open("a+", encoding="ascii", errors="replace")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            number = file.read(32).strip()
            file.close()
            owner = f"process {number}" if number else "another process"
            raise QuicxError(
                f"{path}: pidfile is in use by {owner}: stop it, or choose another file",
                "misuse",
            ) from None
        except BaseException:
            file.close()
            raise
        # Its previous owner may have removed the file before it was locked.
        if _is_at(file, path):
            return file
        file.close()


def _is_at(file: TextIO, path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False
