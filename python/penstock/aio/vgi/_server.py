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
    """An implementation whose coroutines run in a loop while the thread of the call waits for them."""

    def __init__(self, implementation: object, loop: asyncio.AbstractEventLoop) -> None:
        self._implementation, self._loop = implementation, loop

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._implementation, name)
        return self._wait_for(method) if inspect.iscoroutinefunction(method) else method

    def _wait_for(self, method: Callable[..., Any]) -> Callable[..., Any]:
        # Its signature and annotations are what the server looks at.
        @functools.wraps(method)
        def call(*arguments: Any, **keywords: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(method(*arguments, **keywords), self._loop).result()

        return call


class RpcServer:
    """Answers calls with methods that may be coroutines; these run in the loop that makes the server.

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
        """Take what ``penstock.vgi.RpcServer`` takes, in the loop that runs."""
        blocking = _Blocking(implementation, asyncio.get_running_loop())
        self.blocking = vgi.RpcServer(protocol, blocking, **options)
        """The server as ``penstock.vgi`` has it, for what takes one, ``make_asgi_app`` for example."""

    async def serve(self, transport: RpcTransport) -> None:
        """Answer calls until the peer closes its end."""
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
            except BaseException as raised:  # noqa: BLE001 -- it is raised where it is awaited
                error = raised
            loop.call_soon_threadsafe(end, error)

        # A thread of its own, that ends with the connection: those of the loop are for short work.
        threading.Thread(target=work, name="vgi-aio-serve", daemon=True).start()
        await done


def serve_pipe(protocol: type, implementation: object, **options: Any) -> AbstractAsyncContextManager[Any]:
    """Serve in this process, over pipes, and give a proxy: for tests and trials. Methods may be coroutines."""
    blocking = _Blocking(implementation, asyncio.get_running_loop())
    return entered(lambda: vgi.serve_pipe(protocol, blocking, **options))
