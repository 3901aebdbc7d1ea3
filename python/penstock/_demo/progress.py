"""The stages of the demo, one after the other, and how long each took."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from rich.console import Console

from penstock._progress import SinkMetrics, Stage, following, show

__all__ = ["Stages"]


class Stages:
    """The stages of the demo."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.seconds: dict[str, float] = {}
        """The stages that are over, with their seconds."""

    @contextmanager
    def stage(self, name: str, total: int | None = None, sink: str | None = None) -> Iterator[Stage]:
        """Show a stage while the block runs.

        Args:
            name: What it is.
            total: Its steps, if they are known.
            sink: Where a sink serves its metrics; then the steps are the documents that have arrived there.
        """
        begun = time.monotonic()
        stage = show(self._console, name, total)
        with stage, nullcontext() if sink is None else _arrivals(stage, sink):
            yield stage
        self.seconds[name] = time.monotonic() - begun


@contextmanager
def _arrivals(stage: Stage, sink: str) -> Iterator[None]:
    metrics = SinkMetrics([sink])

    def update() -> None:
        metrics.update()
        stage.advance(metrics.arrived.documents, str(metrics))

    with following(update):
        yield
