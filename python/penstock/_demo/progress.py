"""Shows how far the demo is: bars on a terminal, lines elsewhere.

What has arrived is read from the events that the sink appends to its file, so it is what the sink has, not what the
sender believes.
"""

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

__all__ = ["Arrivals", "Stages"]

_TERMINAL = {"COMPLETE", "FAILED", "SKIPPED", "ABANDONED"}
_POLL_SECONDS = 0.25
_LINE_SECONDS = 5.0


@dataclass
class Arrivals:
    """What the events of a sink tell so far."""

    events: Path
    entities: int = 0
    octets: int = 0
    documents: int = 0
    """Roots that have a terminal status."""
    _position: int = field(default=0, init=False)

    def update(self) -> None:
        """Read the lines that were added; one that is still being written is left for the next time."""
        try:
            with self.events.open("rb") as file:
                file.seek(self._position)
                added = file.read()
        except FileNotFoundError:
            return
        whole = added[: added.rfind(b"\n") + 1]
        self._position += len(whole)
        for line in whole.splitlines():
            event = json.loads(line)
            match event["event"]:
                case "entity":
                    self.entities += 1
                    self.octets += event["bytes"]
                case "status" if event["scope"] == 0 and event["by"] == "us" and event["status"] in _TERMINAL:
                    self.documents += 1

    def __str__(self) -> str:
        """Say it in a few words."""
        return f"{self.entities:,} entities, {decimal(self.octets)} at the sink"


class Stages:
    """The stages of the demo, one after the other, and how long each took."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.seconds: dict[str, float] = {}
        """The stages that are over, with their seconds."""

    @contextmanager
    def stage(self, name: str, total: int | None = None, arrivals: Arrivals | None = None) -> Iterator["Stage"]:
        """Show a stage while the block runs; ``total`` steps if they are known, followed by ``arrivals`` if given."""
        begun = time.monotonic()
        stage = _Bar(self._console, name, total) if self._console.is_terminal else _Lines(self._console, name, total)
        with stage, _following(stage, arrivals):
            yield stage
        self.seconds[name] = time.monotonic() - begun


class Stage(ABC):
    """What is shown of one stage."""

    @abstractmethod
    def advance(self, done: int, note: str = "") -> None:
        """Say how many steps are done."""

    @abstractmethod
    def __enter__(self) -> None:
        """Show it."""

    @abstractmethod
    def __exit__(self, *error: object) -> None:
        """Show it no more."""


class _Bar(Stage):
    def __init__(self, console: Console, name: str, total: int | None) -> None:
        columns = [SpinnerColumn(finished_text="[green]✓[/]"), TextColumn("{task.description:<28}"), BarColumn(24)]
        steps = [MofNCompleteColumn()] if total is not None else []
        self._progress = Progress(
            *columns, *steps, TimeElapsedColumn(), TextColumn("{task.fields[note]}"), console=console
        )
        self._total = total
        self._task: TaskID = self._progress.add_task(name, total=total, note="")

    def advance(self, done: int, note: str = "") -> None:
        self._progress.update(self._task, completed=done, note=note)

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
        self._shown = self._begun = time.monotonic()

    def advance(self, done: int, note: str = "") -> None:
        if time.monotonic() - self._shown >= _LINE_SECONDS:
            self._shown = time.monotonic()
            steps = f"{done} of {self._total}" if self._total is not None else ""
            self._print(", ".join(text for text in (steps, note) if text))

    def __enter__(self) -> None:
        self._print("" if self._total is None else f"{self._total} in all")

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self._print(f"done in {time.monotonic() - self._begun:.1f} s")

    def _print(self, text: str) -> None:
        line = f"{self._name}: {text}" if text else self._name
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _following(stage: Stage, arrivals: Arrivals | None) -> Iterator[None]:
    """Read the sink's events in a thread while the block, which waits for Spark, runs."""
    if arrivals is None:
        yield
        return
    stop = threading.Event()

    def follow() -> None:
        while not stop.wait(_POLL_SECONDS):
            arrivals.update()
            stage.advance(arrivals.documents, str(arrivals))

    thread = threading.Thread(target=follow, name="penstock-demo-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        arrivals.update()
        stage.advance(arrivals.documents, str(arrivals))
