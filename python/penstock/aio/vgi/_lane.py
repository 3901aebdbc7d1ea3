"""The threads that run blocking calls for tasks."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any, TypeVar

from penstock import _core
from penstock.vgi.rpc import RpcError

__all__ = ["Lane", "lane_of"]

T = TypeVar("T")


class Lane:
    """The threads of one connection; a pipe or a socket has one, where calls run one after the other.

    The call of a cancelled task continues in its thread, and the next call waits for it. Leaving the connection stops
    the calls that still run.
    """

    def __init__(self, threads: int = 1) -> None:
        self._stop = _core.VgiStop()
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="vgi-aio", initializer=self._stop.watch)
        self._running: set[Future[Any]] = set()

    @property
    def busy(self) -> bool:
        """Whether any call runs or waits."""
        return bool(self._running)

    async def run(self, function: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
        """Run a call and return its result."""
        return await asyncio.wrap_future(self.begin(function, *arguments, **keywords))

    def begin(self, function: Callable[..., T], *arguments: Any, **keywords: Any) -> "Future[T]":
        """Begin a call without waiting for it."""
        future = self._executor.submit(function, *arguments, **keywords)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return future

    async def leave(self, end: Callable[[], Any]) -> None:
        """Stop running calls, end the connection, and release the threads."""
        if self._running:
            self._stop.set()
        try:
            # It no longer matters whether the peer is still there. A cancelled task ends its connection too.
            with contextlib.suppress(RpcError, InterruptedError):
                await asyncio.shield(asyncio.wrap_future(self._executor.submit(end)))
        finally:
            self._executor.shutdown(wait=False)


@asynccontextmanager
async def lane_of(make: Callable[[], AbstractContextManager[T]], threads: int = 1) -> AsyncIterator[tuple[Lane, T]]:
    """Enter a blocking connection in threads of its own, and yield these and the result of entering."""
    lane = Lane(threads)
    context: list[AbstractContextManager[T]] = []

    def enter() -> T:
        made = make()
        given = made.__enter__()
        context.append(made)
        return given

    def end() -> None:
        # The list is empty if entering failed.
        while context:
            context.pop().__exit__(None, None, None)

    try:
        given = await lane.run(enter)
        yield lane, given
    finally:
        await lane.leave(end)
