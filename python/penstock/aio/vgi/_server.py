"""Servers whose methods may be coroutines."""

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from penstock import vgi
from penstock.aio.vgi._client import entered
from penstock.vgi.rpc import RpcTransport

__all__ = ["RpcServer", "serve_pipe"]


class _Blocking:
    """An implementation whose coroutines run in an event loop while the thread of the call waits for them."""

    def __init__(self, implementation: object, loop: asyncio.AbstractEventLoop) -> None:
        self._implementation, self._loop = implementation, loop

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._implementation, name)
        return self._wait_for(method) if inspect.iscoroutinefunction(method) else method

    def _wait_for(self, method: Callable[..., Any]) -> Callable[..., Any]:
        # The server inspects the signature and the annotations of the method.
        @functools.wraps(method)
        def call(*arguments: Any, **keywords: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(method(*arguments, **keywords), self._loop).result()

        return call


class RpcServer:
    """A server whose methods may be coroutines, which run in the event loop that creates the server.

    ```python
    >>> import asyncio
    >>> from typing import Protocol
    >>> from penstock.aio.vgi import RpcConnection, RpcServer
    >>> from penstock.vgi import make_pipe_pair
    >>> class Clock(Protocol):
    ...     def wait(self, seconds: float) -> str: ...
    >>> class ClockImpl:
    ...     async def wait(self, seconds: float) -> str:
    ...         await asyncio.sleep(seconds)
    ...         return "it is time"
    >>> async def main() -> str:
    ...     ours, theirs = make_pipe_pair()
    ...     serving = asyncio.create_task(RpcServer(Clock, ClockImpl()).serve(theirs))
    ...     async with RpcConnection(Clock, ours) as clock:
    ...         said = await clock.wait(seconds=0.0)
    ...     ours.close()
    ...     await serving
    ...     return said
    >>> asyncio.run(main())
    'it is time'

    ```
    """

    def __init__(self, protocol: type, implementation: object, **options: Any) -> None:
        """Create a server in the running event loop; the arguments are those of ``penstock.vgi.RpcServer``."""
        blocking = _Blocking(implementation, asyncio.get_running_loop())
        self.blocking = vgi.RpcServer(protocol, blocking, **options)
        """The ``penstock.vgi.RpcServer``, for functions that need one, for example ``make_asgi_app``."""

    async def serve(self, transport: RpcTransport) -> None:
        """Answer the calls on a transport until the peer closes its end."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def end(error: BaseException | None) -> None:
            if not done.done():
                if error is None:
                    done.set_result(None)
                else:
                    done.set_exception(error)

        def work() -> None:
            error: BaseException | None = None
            try:
                self.blocking.serve(transport)
            except BaseException as raised:  # noqa: BLE001 -- it is raised in the awaiting task
                error = raised
            loop.call_soon_threadsafe(end, error)

        # A separate thread, which ends with the connection: the loop's own threads are for short tasks.
        threading.Thread(target=work, name="vgi-aio-serve", daemon=True).start()
        await done


def serve_pipe(protocol: type, implementation: object, **options: Any) -> AbstractAsyncContextManager[Any]:
    """Return an async context manager that serves in this process, over pipes, and yields a proxy.

    It is meant for tests and experiments. Methods may be coroutines. The options are those of
    ``penstock.vgi.serve_pipe``.
    """
    blocking = _Blocking(implementation, asyncio.get_running_loop())
    return entered(lambda: vgi.serve_pipe(protocol, blocking, **options))
