"""vgi for asyncio: proxies whose methods are awaited, and servers whose methods may be coroutines.

The names are those of ``penstock.vgi``. Each connection has a thread of its own, in which its calls wait one after the
other; a task that is cancelled leaves its call to that thread, and the next call waits for it.
"""

from penstock.aio.vgi._client import (
    AsyncStreamSession,
    RpcConnection,
    WorkerPool,
    connect,
    tcp_connect,
    unix_connect,
)
from penstock.aio.vgi._server import RpcServer, serve_pipe

__all__ = [
    "AsyncStreamSession",
    "RpcConnection",
    "RpcServer",
    "WorkerPool",
    "connect",
    "serve_pipe",
    "tcp_connect",
    "unix_connect",
]
