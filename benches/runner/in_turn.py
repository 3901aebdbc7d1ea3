"""Run a suite of the checkout in the current folder, in turn with another process that runs it in another checkout.

``python in_turn.py PLACE INCOMING OUTGOING FOLDER SUITE [OPTION ...]``; two pipes between the processes carry the turn.
Only the process that has the turn runs: it passes the turn on where a measured call would begin, so that the calls
alternate and a host that becomes slower or faster does so to both.
"""

import os
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any


class Place(StrEnum):
    """Which process begins."""

    FIRST = "first"
    SECOND = "second"


class Turn:
    """The right to run, which two processes pass to each other. A process that ends passes it on for good."""

    def __init__(self, place: Place, incoming: int, outgoing: int) -> None:
        self._place = place
        self._incoming = incoming
        self._outgoing = outgoing
        self._runs = 0
        for descriptor in (incoming, outgoing):
            # A server that a suite starts would keep the pipe open when this process has ended.
            os.set_inheritable(descriptor, False)
        if place is Place.SECOND:
            self._wait()

    def before_call(self, *, starts_run: bool) -> None:
        """Pass the turn on and wait for it, unless this process has the first call of this run and the one before.

        `starts_run` says that the call is that of the first side. The order of the processes changes with each run:
        A1 B1 A2 B2, B1 A1 B2 A2, so that each side of each process comes as often after the same other call.
        """
        if starts_run:
            self._runs += 1
            begins = (self._runs % 2 == 1) == (self._place is Place.FIRST)
            if begins or self._runs == 1:
                return
        try:
            os.write(self._outgoing, b"\n")
        except BrokenPipeError:  # The other process has ended.
            return
        self._wait()

    def _wait(self) -> None:
        os.read(self._incoming, 1)  # Empty once the other process has ended.

    def around(self, interleaved: Callable[..., Any]) -> Callable[..., Any]:
        """Return `Bench.interleaved` whose calls wait for the turn."""

        def waiting(at: int, call: Callable[[], Any]) -> Callable[[], Any]:
            def wait_and_call() -> Any:
                self.before_call(starts_run=at == 0)
                return call()

            return wait_and_call

        @wraps(interleaved)
        def in_turn(bench: Any, sides: Mapping[str, Callable[[], Any]], **options: Any) -> Any:
            return interleaved(bench, {name: waiting(at, sides[name]) for at, name in enumerate(sides)}, **options)

        return in_turn


def main(place: str, incoming: str, outgoing: str, folder: str, *words: str) -> None:
    """Wait for the turn, and run the benchmarks of the checkout with `words` as their arguments.

    What suites write is in `folder`, that of both processes: how dear a file is depends on what was removed near it.
    """

    @contextmanager
    def shared(_: Any) -> Iterator[Path]:
        with TemporaryDirectory(dir=folder, prefix=f"{place}-") as inside:
            yield Path(inside)

    turn = Turn(Place(place), int(incoming), int(outgoing))
    # In place of this file's folder: `benches` is that of the checkout.
    sys.path[0] = str(Path.cwd())
    from benches.runner import Bench

    Bench.interleaved = turn.around(Bench.interleaved)  # type: ignore[method-assign]
    Bench.folder = shared  # type: ignore[method-assign, assignment]
    sys.argv = ["benches", *words]
    runpy.run_module("benches", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
