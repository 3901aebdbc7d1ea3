"""The progress of documents on a terminal."""

import sys
from contextlib import nullcontext

__all__ = ["Bar", "progress"]


class Bar:
    """A progress bar on a terminal."""

    def __init__(self, documents: int) -> None:
        """Show it from the ``with`` block on."""
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
        """Say that one more document is settled, and how many parts there are by now."""
        self._progress.update(self._task, advance=1, parts=parts)


def progress(documents: int, json_lines: bool) -> "Bar | nullcontext[None]":
    """Give a bar where somebody sees it."""
    return Bar(documents) if sys.stderr.isatty() and not json_lines else nullcontext()
