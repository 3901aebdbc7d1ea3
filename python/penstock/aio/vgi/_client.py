"""A caller's end for asyncio."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from penstock import vgi
from penstock.vgi.rpc import RpcTransport
from penstock.vgi.rpc import tcp_connect as blocking_tcp_connect
from penstock.vgi.rpc import unix_connect as blocking_unix_connect

__all__ = [
    "AsyncStreamSession",
    "RpcConnection",
    "WorkerPool",
    "connect",
    "tcp_connect",
    "unix_connect",
]

T = TypeVar("T")
H = TypeVar("H", bound=vgi.ArrowSerializableDataclass)


class _Lane:
    """The thread that the calls of one connection wait in."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="vgi-aio")

    async def run(self, function: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: function(*arguments, **keywords))

    def end(self) -> None:
        self._executor.shutdown(wait=False)


class AsyncStreamSession:
    """A caller's end of a stream: ``async for`` over it, or await its ``exchange``."""

    def __init__(self, lane: "_Lane", session: vgi.StreamSession) -> None:
        """Wrap a session; streaming methods of proxies make it."""
        self._lane = lane
        self._session = session

    async def __aenter__(self) -> Self:
        """Give this session."""
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()

    async def __aiter__(self) -> AsyncIterator[vgi.AnnotatedBatch]:
        """Give the batches of a producer."""
        while (batch := await self.tick()) is not None:
            yield batch

    async def header(self) -> object | None:
        """Give what the stream sent before all batches; None for a stream that declares none."""
        return await self._lane.run(lambda: self._session.header)

    async def typed_header(self, header_type: type[H]) -> H:
        """Give the header; TypeError where it is none of that type."""
        return await self._lane.run(self._session.typed_header, header_type)

    async def tick(self) -> vgi.AnnotatedBatch | None:
        """Give the next batch of a producer; None after the last one."""
        # StopIteration cannot go through a future.
        return await self._lane.run(lambda: next(iter(self._session), None))

    async def exchange(self, input: vgi.AnnotatedBatch) -> vgi.AnnotatedBatch:  # noqa: A002
        """Send a batch and give the answer."""
        return await self._lane.run(self._session.exchange, input)

    async def cancel(self) -> None:
        """Give the stream up."""
        await self._lane.run(self._session.cancel)

    async def close(self) -> None:
        """End the stream."""
        await self._lane.run(self._session.close)


class _Proxy:
    def __init__(self, lane: _Lane, proxy: Any) -> None:
        self._lane, self._proxy = lane, proxy

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._proxy, name)

        async def call(**keywords: Any) -> Any:
            result = await self._lane.run(method, **keywords)
            return AsyncStreamSession(self._lane, result) if isinstance(result, vgi.StreamSession) else result

        return call


@asynccontextmanager
async def entered(make: Callable[[], AbstractContextManager[Any]]) -> AsyncIterator[Any]:
    """Enter a blocking connection in a thread of its own, and give its proxy for asyncio."""
    lane = _Lane()
    try:
        context = await lane.run(make)
        proxy = await lane.run(context.__enter__)
        try:
            yield _Proxy(lane, proxy)
        finally:
            await asyncio.shield(lane.run(context.__exit__, None, None, None))
    finally:
        lane.end()


def RpcConnection(  # noqa: N802 -- the name of its blocking twin
    protocol: type, transport: RpcTransport, *arguments: Any, **options: Any
) -> AbstractAsyncContextManager[Any]:
    """Give a proxy of the service at the other end of a transport; the arguments are those of its blocking twin."""
    return entered(lambda: vgi.RpcConnection(protocol, transport, *arguments, **options))


def connect(protocol: type, cmd: list[str], **options: Any) -> AbstractAsyncContextManager[Any]:
    """Start a worker, and give a proxy of it; the options are those of ``penstock.vgi.connect``."""
    return entered(lambda: vgi.connect(protocol, cmd, **options))


def unix_connect(protocol: type, path: str, **options: Any) -> AbstractAsyncContextManager[Any]:
    """Connect to a Unix socket, and give a proxy; the options are those of ``penstock.vgi.rpc.unix_connect``."""
    return entered(lambda: blocking_unix_connect(protocol, path, **options))


def tcp_connect(protocol: type, host: str, port: int, **options: Any) -> AbstractAsyncContextManager[Any]:
    """Connect to a TCP port, and give a proxy; the options are those of ``penstock.vgi.rpc.tcp_connect``."""
    return entered(lambda: blocking_tcp_connect(protocol, host, port, **options))


class WorkerPool:
    """Keeps workers between connections, as ``penstock.vgi.WorkerPool`` does.

    ```python
    >>> import asyncio
    >>> from penstock.aio.vgi import WorkerPool
    >>> async def main() -> int:
    ...     async with WorkerPool(max_idle=2) as pool:
    ...         return pool.metrics.spawns
    >>> asyncio.run(main())
    0

    ```
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Take what its blocking twin takes."""
        self._pool = vgi.WorkerPool(*arguments, **options)

    @property
    def metrics(self) -> vgi.PoolMetrics:
        """What it has done, and what it has."""
        return self._pool.metrics

    def connect(self, protocol: type, cmd: list[str], **options: Any) -> AbstractAsyncContextManager[Any]:
        """Give a proxy of a worker that runs ``cmd``."""
        return entered(lambda: self._pool.connect(protocol, cmd, **options))

    async def close(self) -> None:
        """End the idle workers."""
        await asyncio.to_thread(self._pool.close)

    async def __aenter__(self) -> Self:
        """Give this pool."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self.close()
