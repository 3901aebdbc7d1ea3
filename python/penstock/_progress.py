"""Show progress: a bar on a terminal, lines elsewhere. The demo and `penstock.spark.progress` use it.

The numbers are read from the metrics of the sinks, so they count what has arrived, not what a sender assumes.
"""

import re
import threading
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

__all__ = ["Arrived", "SinkMetrics", "Stage", "following", "show"]

_POLL_SECONDS = 0.25
_LINE_SECONDS = 5.0
_SCRAPE_SECONDS = 5.0
_SERIES = re.compile(r'^penstock_pipestream_(\w+)_total(?:\{status="(\w+)"\})? (\d+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Arrived:
    """The numbers of documents, entities and bytes that sinks have received."""

    documents: int = 0
    """Root entities that are terminal."""
    complete: int = 0
    """Entities that became COMPLETE."""
    failed: int = 0
    """Entities that became FAILED."""
    bytes: int = 0
    """Bytes of payloads that arrived completely."""

    def __add__(self, other: "Arrived") -> "Arrived":
        """Add the numbers of another sink."""
        return self._each(other, 1)

    def __sub__(self, other: "Arrived") -> "Arrived":
        """Subtract earlier numbers."""
        return self._each(other, -1)

    def _each(self, other: "Arrived", sign: int) -> "Arrived":
        return Arrived(
            self.documents + sign * other.documents,
            self.complete + sign * other.complete,
            self.failed + sign * other.failed,
            self.bytes + sign * other.bytes,
        )


class SinkMetrics:
    """Reads the metrics of sinks, and counts from the moment at which the object was made."""

    def __init__(self, addresses: Iterable[str]) -> None:
        """Read the metrics that ``penstock pipestream serve --metrics`` serves at each HOST:PORT.

        Raises:
            OSError: A sink does not answer.
        """
        self._addresses = tuple(addresses)
        self._begun = time.monotonic()
        self._before = self._read()
        self.arrived = Arrived()

    def update(self) -> None:
        """Read the metrics again. If a sink does not answer, keep the earlier numbers."""
        try:
            self.arrived = self._read() - self._before
        except OSError:
            return

    def _read(self) -> Arrived:
        return sum((_scrape(address) for address in self._addresses), Arrived())

    def __str__(self) -> str:
        """Return the numbers and rates as one line."""
        seconds = max(time.monotonic() - self._begun, 0.001)
        entities = self.arrived.complete + self.arrived.failed
        return (
            f"{entities:,} entities, {self.arrived.failed:,} failed, {decimal(self.arrived.bytes)} at the sink, "
            f"{entities / seconds:,.0f}/s, {decimal(int(self.arrived.bytes / seconds))}/s"
        )


def _scrape(address: str) -> Arrived:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=_SCRAPE_SECONDS) as answer:
        text = answer.read().decode()
    found = {(name, status): int(value) for name, status, value in _SERIES.findall(text)}
    return Arrived(
        documents=found.get(("root_entities", ""), 0),
        complete=found.get(("entities", "COMPLETE"), 0),
        failed=found.get(("entities", "FAILED"), 0),
        bytes=found.get(("payload_bytes", ""), 0),
    )


class Stage(ABC):
    """The display of one stage of work."""

    @abstractmethod
    def advance(self, done: int, note: str = "", total: int | None = None) -> None:
        """Show the number of steps that are done, and the total if it has become known."""

    @abstractmethod
    def __enter__(self) -> None:
        """Start the display."""

    @abstractmethod
    def __exit__(self, *error: object) -> None:
        """End the display."""


def show(console: Console, name: str, total: int | None, *, steps: bool = False) -> Stage:
    """Make a bar, or lines if the console is not a terminal. ``steps`` means that the total becomes known later."""
    if console.is_terminal:
        return _Bar(console, name, total, steps=steps or total is not None)
    return _Lines(console, name, total)


class _Bar(Stage):
    def __init__(self, console: Console, name: str, total: int | None, *, steps: bool) -> None:
        columns = [SpinnerColumn(finished_text="[green]✓[/]"), TextColumn("{task.description:<28}"), BarColumn(24)]
        counts = [MofNCompleteColumn()] if steps else []
        self._progress = Progress(
            *columns, *counts, TimeElapsedColumn(), TextColumn("{task.fields[note]}"), console=console
        )
        self._total = total
        self._task: TaskID = self._progress.add_task(name, total=total, note="")

    def advance(self, done: int, note: str = "", total: int | None = None) -> None:
        self._total = self._total if total is None else total
        self._progress.update(self._task, completed=done, note=note, total=self._total)

    def __enter__(self) -> None:
        self._progress.start()

    def __exit__(self, *error: object) -> None:
        if error[0] is None and self._total is None:
            self._progress.update(self._task, total=1, completed=1)
        self._progress.stop()


class _Lines(Stage):
    def __init__(self, console: Console, name: str, total: int | None) -> None:
        self._console = console
        self._name = name
        self._total = total
        self._last = ""
        self._shown = self._begun = time.monotonic()

    def advance(self, done: int, note: str = "", total: int | None = None) -> None:
        self._total = self._total if total is None else total
        steps = f"{done} of {self._total}" if self._total is not None else ""
        self._last = ", ".join(text for text in (steps, note) if text)
        if time.monotonic() - self._shown >= _LINE_SECONDS:
            self._shown = time.monotonic()
            self._print(self._last)

    def __enter__(self) -> None:
        self._print("" if self._total is None else f"{self._total} in all")

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            done = f"done in {time.monotonic() - self._begun:.1f} s"
            self._print(f"{done}, {self._last}" if self._last else done)

    def _print(self, text: str) -> None:
        line = f"{self._name}: {text}" if text else self._name
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def following(update: Callable[[], None]) -> Iterator[None]:
    """Call ``update`` repeatedly in a thread while the block, which waits for Spark, runs, and once at its end."""
    stop = threading.Event()

    def follow() -> None:
        while not stop.wait(_POLL_SECONDS):
            update()

    thread = threading.Thread(target=follow, name="penstock-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        update()
