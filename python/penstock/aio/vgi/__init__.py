"""vgi for asyncio: proxies whose methods are awaited, and servers whose methods may be coroutines.

The names are those of ``penstock.vgi``. Each connection has a thread of its own, in which its calls wait one after the
other (over HTTP eight); a task that is cancelled leaves its call to that thread, and the next call waits for it. What
still runs when the connection is left is stopped.
"""

from penstock.aio.vgi._client import (
    AsyncStreamSession,
    RpcConnection,
    WorkerPool,
    connect,
    http_connect,
    http_introspect,
    introspect,
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
    "http_connect",
    "http_introspect",
    "introspect",
    "serve_pipe",
    "tcp_connect",
    "unix_connect",
]
