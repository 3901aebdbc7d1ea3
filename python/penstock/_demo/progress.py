"""The progress and the duration of the demo's stages."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from rich.console import Console

from penstock._progress import SinkMetrics, Stage, following, show

__all__ = ["Stages"]


class Stages:
    """The stages of the demo, which run one after another."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.seconds: dict[str, float] = {}
        """The duration in seconds of each stage that has ended."""

    @contextmanager
    def stage(self, name: str, total: int | None = None, sink: str | None = None) -> Iterator[Stage]:
        """Show a stage while the block runs.

        Args:
            name: The name of the stage.
            total: The number of steps, if it is known.
            sink: The address of a sink's metrics; then the steps are the documents that have arrived there.
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
