"""Awaits what the Rust core has under way.

A task polls its operation itself, so a result is never on its way between two threads: a task that is cancelled has
either got it, or it is still there for the next one. The core only says, by a pipe that the loop watches, which polls
are worth while.
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
"""So often may tasks find what they want without the loop turning; then others have their turn."""


class _Bridge:
    """The operations that the tasks of one loop wait for."""

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
        """Wait until an operation is worth another poll."""
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
    """Give what makes operations for the running loop."""
    return _bridge().futures


async def result(operation: "_core.Operation[_T]") -> _T:
    """Wait for an operation. Cancelled, it gives the operation up."""
    bridge = _bridge()
    try:
        bridge.polls += 1
        if bridge.polls >= _POLLS_IN_A_ROW:
            bridge.polls = 0
            # Before the poll: nothing is in hand that could be lost.
            await asyncio.sleep(0)
        while (done := operation.poll()) is None:
            await bridge.ring(operation.id)
    finally:
        operation.cancel()
    return done[0]


@asynccontextmanager
async def limit(seconds: float | None, what: str) -> AsyncIterator[None]:
    """Give the block so many seconds; after them raise an error of kind "deadline" that begins with ``what``."""
    async with seconds_or(seconds, late(what)):
        yield


@asynccontextmanager
async def seconds_or(seconds: float | None, error: Exception) -> AsyncIterator[None]:
    """Give the block so many seconds; after them raise the error."""
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
    """Something that takes a while to be there: await it to have it, or enter it with ``async with``."""

    def __init__(self, start: Callable[[], Coroutine[Any, Any, _S]]) -> None:
        """Begin only when it is awaited or entered."""
        self._start = start
        self._made: _S | None = None

    def __await__(self) -> Generator[Any, Any, _S]:
        """Wait for it."""
        return self._start().__await__()

    async def __aenter__(self) -> _S:
        """Wait for it, and let the end of the block be its end."""
        self._made = await self._start()
        return self._made

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End it as it ends itself."""
        if self._made is not None:
            await self._made.__aexit__(kind, error, traceback)
