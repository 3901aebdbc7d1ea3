"""The client for asyncio."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from types import TracebackType
from typing import Any, Self, TypeVar

from penstock import vgi
from penstock.aio.vgi._lane import Lane, lane_of
from penstock.vgi.rpc import RpcTransport
from penstock.vgi.rpc import tcp_connect as blocking_tcp_connect
from penstock.vgi.rpc import unix_connect as blocking_unix_connect

__all__ = [
    "AsyncStreamSession",
    "RpcConnection",
    "WorkerPool",
    "connect",
    "http_connect",
    "http_introspect",
    "introspect",
    "tcp_connect",
    "unix_connect",
]

T = TypeVar("T")
H = TypeVar("H", bound=vgi.ArrowSerializableDataclass)

_EVER = 10 * 365 * 86_400.0
"""The timeout of an answer in seconds, in effect none: the core checks for a stop only in calls with a timeout."""
_CALLS = 8
"""The most concurrent calls of one proxy over HTTP."""


class AsyncStreamSession:
    """The client's end of a stream: use ``async for`` with a producer, or await ``exchange``.

    Cancelling a task within ``async with`` or ``async for`` cancels the stream.

    ```python
    >>> import asyncio
    >>> from dataclasses import dataclass
    >>> from typing import Protocol
    >>> import pyarrow as pa
    >>> from penstock.aio.vgi import serve_pipe
    >>> from penstock.vgi import ProducerState, Stream
    >>> NUMBERS = pa.schema([("n", pa.int64())])
    >>> @dataclass
    ... class Count(ProducerState):
    ...     n: int
    ...     def produce(self, out, ctx):
    ...         self.n -= 1
    ...         out.emit_pydict({"n": [self.n]}) if self.n >= 0 else out.finish()
    >>> class Counter(Protocol):
    ...     def count(self, n: int) -> Stream[Count]: ...
    >>> class CounterImpl:
    ...     def count(self, n: int) -> Stream[Count]:
    ...         return Stream(output_schema=NUMBERS, state=Count(n))
    >>> async def main() -> list[int]:
    ...     async with serve_pipe(Counter, CounterImpl()) as counter, await counter.count(n=3) as stream:
    ...         return [batch.batch["n"][0].as_py() async for batch in stream]
    >>> asyncio.run(main())
    [2, 1, 0]

    ```
    """

    def __init__(self, lane: Lane, session: vgi.StreamSession | vgi.HttpStreamSession) -> None:
        """Wrap a session; the streaming methods of proxies do this."""
        self._lane = lane
        self._session = session
        self._running: set[Future[Any]] = set()

    async def __aenter__(self) -> Self:
        """Return this session."""
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        """Close the session; cancel it if the task is cancelled, or a call of the session still runs."""
        # If anything still runs, do not wait for it here: the next call of the connection does.
        if isinstance(exc_val, asyncio.CancelledError) or self._running:
            self._lane.begin(self._session.cancel)
        elif self._lane.busy:
            # Another call runs, or waits for its turn. On a pipe or a socket it ends this stream when it begins; over
            # HTTP there is nothing to end.
            self._lane.begin(self._session.close)
        else:
            await self.close()

    async def __aiter__(self) -> AsyncIterator[vgi.AnnotatedBatch]:
        """Yield the batches of a producer."""
        try:
            while (batch := await self.tick()) is not None:
                yield batch
        except asyncio.CancelledError:
            self._lane.begin(self._session.cancel)
            raise

    async def header(self) -> object | None:
        """Return the header, which precedes all batches; None for a stream that declares none."""
        return await self._run(lambda: self._session.header)

    async def typed_header(self, header_type: type[H]) -> H:
        """Return the header; raise TypeError if it is missing or not an instance of ``header_type``."""
        return await self._run(self._session.typed_header, header_type)

    async def tick(self) -> vgi.AnnotatedBatch | None:
        """Return the next batch of a producer; None after the last one."""
        # A future cannot raise StopIteration.
        return await self._run(lambda: next(iter(self._session), None))

    async def exchange(self, input: vgi.AnnotatedBatch) -> vgi.AnnotatedBatch:  # noqa: A002
        """Send a batch and return the answer."""
        return await self._run(self._session.exchange, input)

    async def cancel(self) -> None:
        """Cancel the stream; the server calls ``on_cancel`` of the stream's state."""
        await self._lane.run(self._session.cancel)

    async def close(self) -> None:
        """End the stream."""
        await self._lane.run(self._session.close)

    async def _run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a call of this stream and return its result."""
        future = self._lane.begin(function, *arguments)
        self._running.add(future)
        # This callback runs before that of the task, which therefore finds no call that has ended.
        future.add_done_callback(self._running.discard)
        return await asyncio.wrap_future(future)


class _Proxy:
    def __init__(self, lane: Lane, proxy: Any) -> None:
        self._lane, self._proxy = lane, proxy

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._proxy, name)

        async def call(**keywords: Any) -> Any:
            result = await self._lane.run(method, **keywords)
            return (
                AsyncStreamSession(self._lane, result)
                if isinstance(result, vgi.StreamSession | vgi.HttpStreamSession)
                else result
            )

        return call


@asynccontextmanager
async def entered(make: Callable[[], AbstractContextManager[Any]], threads: int = 1) -> AsyncIterator[Any]:
    """Enter a blocking connection in threads of its own, and yield its proxy for asyncio."""
    async with lane_of(make, threads) as (lane, proxy):
        proxy._caller.client.timeout = _EVER
        yield _Proxy(lane, proxy)


def RpcConnection(  # noqa: N802 -- the name in penstock.vgi
    protocol: type, transport: RpcTransport, *arguments: Any, **options: Any
) -> AbstractAsyncContextManager[Any]:
    """Return an async context manager for a proxy of the service at the other end of a transport.

    The arguments are those of ``penstock.vgi.RpcConnection``.
    """
    return entered(lambda: vgi.RpcConnection(protocol, transport, *arguments, **options))


def connect(protocol: type, cmd: list[str], **options: Any) -> AbstractAsyncContextManager[Any]:
    """Return an async context manager that starts a worker and yields a proxy of it.

    The options are those of ``penstock.vgi.connect``.
    """
    return entered(lambda: vgi.connect(protocol, cmd, **options))


def unix_connect(protocol: type, path: str, **options: Any) -> AbstractAsyncContextManager[Any]:
    """Return an async context manager that connects to a Unix socket and yields a proxy.

    The options are those of ``penstock.vgi.rpc.unix_connect``.
    """
    return entered(lambda: blocking_unix_connect(protocol, path, **options))


def tcp_connect(protocol: type, host: str, port: int, **options: Any) -> AbstractAsyncContextManager[Any]:
    """Return an async context manager that connects to a TCP port and yields a proxy.

    The options are those of ``penstock.vgi.rpc.tcp_connect``.
    """
    return entered(lambda: blocking_tcp_connect(protocol, host, port, **options))


def http_connect(protocol: type, base_url: str | None = None, **options: Any) -> AbstractAsyncContextManager[Any]:
    """Return an async context manager for a proxy of a service at a URL.

    At most eight calls run at the same time; further ones wait. The options are those of ``penstock.vgi.http_connect``.
    """
    return entered(lambda: vgi.http_connect(protocol, base_url, **options), _CALLS)


async def introspect(transport: RpcTransport, **options: Any) -> vgi.ServiceDescription:
    """Request the description of the server at the other end of a transport.

    The options are those of ``penstock.vgi.introspect``.

    Raises:
        RpcError: If the server does not answer ``__describe__``, or its description cannot be read.
    """
    return await _once(lambda: vgi.introspect(transport, **options))


async def http_introspect(base_url: str | None = None, **options: Any) -> vgi.ServiceDescription:
    """Request the description of a server at a URL; the options are those of ``penstock.vgi.http_introspect``."""
    return await _once(lambda: vgi.http_introspect(base_url, **options))


async def _once(ask: Callable[[], T]) -> T:
    async with lane_of(nullcontext) as (lane, _):
        return await lane.run(ask)


class WorkerPool:
    """A pool of workers that are reused between connections, like ``penstock.vgi.WorkerPool``.

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
        """Create an empty pool; the arguments are those of ``penstock.vgi.WorkerPool``."""
        self._pool = vgi.WorkerPool(*arguments, **options)

    @property
    def metrics(self) -> vgi.PoolMetrics:
        """The counters of the pool, and its current numbers of workers."""
        return self._pool.metrics

    def connect(self, protocol: type, cmd: list[str], **options: Any) -> AbstractAsyncContextManager[Any]:
        """Return an async context manager for a proxy of a worker that runs ``cmd``.

        The options are those of ``penstock.vgi.WorkerPool.connect``.
        """
        return entered(lambda: self._pool.connect(protocol, cmd, **options))

    async def close(self) -> None:
        """End the idle workers; those in use end when their connections do."""
        await asyncio.to_thread(self._pool.close)

    async def __aenter__(self) -> Self:
        """Return this pool."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the pool."""
        await self.close()
