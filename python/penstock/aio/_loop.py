"""Await operations of the Rust core in an event loop.

Each task polls its own operation, so a result is never in transit between two threads: a task that is cancelled either
has the result, or leaves it for the next task. The core only signals, through a pipe that the loop watches, which
operations are worth polling again.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

from penstock import _core
from penstock.pipestream._keys import late

__all__ = ["Starting", "futures", "limit", "result", "seconds_or"]

_T = TypeVar("_T")

_POLLS_IN_A_ROW = 64
"""After this many polls without a turn of the loop, a task yields to others."""


class _Bridge:
    """The operations that tasks of one event loop are waiting for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.futures = _core.Futures()
        self.polls = 0
        self._waiting: dict[int, asyncio.Future[None]] = {}
        loop.add_reader(self.futures.fileno(), self._wake)

    def _wake(self) -> None:
        self.polls = 0
        for number in self.futures.ready():
            future = self._waiting.get(number)
            if future is not None and not future.done():
                future.set_result(None)

    async def ring(self, number: int) -> None:
        """Wait until an operation is worth polling again."""
        future = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            await future
        finally:
            del self._waiting[number]


_bridges: "WeakKeyDictionary[asyncio.AbstractEventLoop, _Bridge]" = WeakKeyDictionary()


def _bridge() -> _Bridge:
    loop = asyncio.get_running_loop()
    bridge = _bridges.get(loop)
    if bridge is None:
        bridge = _bridges[loop] = _Bridge(loop)
    return bridge


def futures() -> _core.Futures:
    """Return the object that starts operations for the running loop."""
    return _bridge().futures


async def result(operation: "_core.Operation[_T]") -> _T:
    """Wait for an operation and return its result. If the wait is cancelled, the operation is cancelled too."""
    bridge = _bridge()
    try:
        bridge.polls += 1
        if bridge.polls >= _POLLS_IN_A_ROW:
            bridge.polls = 0
            # Before the poll, so that a cancellation here cannot lose a result.
            await asyncio.sleep(0)
        while (done := operation.poll()) is None:
            await bridge.ring(operation.id)
    finally:
        operation.cancel()
    return done[0]


@asynccontextmanager
async def limit(seconds: float | None, what: str) -> AsyncIterator[None]:
    """Limit the block to ``seconds``; after them raise an error of kind "deadline" that begins with ``what``."""
    async with seconds_or(seconds, late(what)):
        yield


@asynccontextmanager
async def seconds_or(seconds: float | None, error: Exception) -> AsyncIterator[None]:
    """Limit the block to ``seconds``; after them raise the error."""
    try:
        async with asyncio.timeout(seconds) as limit:
            yield
    except TimeoutError:
        # An error of the block may be a deadline, too.
        if not limit.expired():
            raise
        raise error from None


class _Entered(Protocol):
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None: ...


_S = TypeVar("_S", bound=_Entered)


class Starting(Generic[_S], Awaitable[_S], AbstractAsyncContextManager[_S]):
    """An object that is still being made: await it to get the object, or enter it with ``async with``."""

    def __init__(self, start: Callable[[], Coroutine[Any, Any, _S]]) -> None:
        """Keep the coroutine function ``start``, which runs when this is awaited or entered."""
        self._start = start
        self._made: _S | None = None

    def __await__(self) -> Generator[Any, Any, _S]:
        """Make the object and return it."""
        return self._start().__await__()

    async def __aenter__(self) -> _S:
        """Make the object and return it; it is closed at the end of the block."""
        self._made = await self._start()
        return self._made

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave the object's own context manager."""
        if self._made is not None:
            await self._made.__aexit__(kind, error, traceback)
