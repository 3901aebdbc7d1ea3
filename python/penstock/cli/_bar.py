"""A progress bar for documents on a terminal."""

import sys
from contextlib import nullcontext

__all__ = ["Bar", "progress"]


class Bar:
    """A progress bar on a terminal."""

    def __init__(self, documents: int) -> None:
        """Make a bar for a number of documents; it is shown during the ``with`` block."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            TextColumn("sending"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("documents, {task.fields[parts]} parts"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task("", total=documents, parts=0)

    def __enter__(self) -> "Bar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def advance(self, parts: int) -> None:
        """Count one more settled document, and show the total number of parts."""
        self._progress.update(self._task, advance=1, parts=parts)


def progress(documents: int, json_lines: bool) -> "Bar | nullcontext[None]":
    """Return a bar if stderr is a terminal and the output is not JSON."""
    return Bar(documents) if sys.stderr.isatty() and not json_lines else nullcontext()
