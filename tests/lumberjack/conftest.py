"""A receiver whose batches a thread takes."""

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.lumberjack import Receiver

sys.path.insert(0, str(Path(__file__).parent))


class Taking:
    """Takes batches, acknowledges them, and keeps their events."""

    def __init__(self, **options: Any) -> None:
        self.receiver = Receiver(**options)
        self.events: list[Any] = []
        self.tags: list[list[str]] = []
        self.came = threading.Condition()
        self._thread = threading.Thread(target=self._take)
        self._thread.start()

    def _take(self) -> None:
        for batch in self.receiver:
            with self.came:
                for event in batch.events():
                    self.events.append(event.content)
                    self.tags.append(list(event.tags))
                self.came.notify_all()
            batch.ack()

    def wait(self, count: int) -> list[Any]:
        with self.came:
            assert self.came.wait_for(lambda: len(self.events) >= count, 30), f"{len(self.events)} of {count}"
            return list(self.events)

    @property
    def address(self) -> str:
        return self.receiver.address

    def close(self) -> None:
        self.receiver.close(5)
        self._thread.join()


@pytest.fixture
def taking() -> Iterator[Callable[..., Taking]]:
    """Make receivers: `taking(pause=0.1)`."""
    made: list[Taking] = []

    def make(**options: Any) -> Taking:
        made.append(Taking(**options))
        return made[-1]

    yield make
    for each in made:
        each.close()
