"""vgi-rpc for asyncio: proxies whose methods are awaited, and servers whose methods may be coroutines.

The names are those of ``penstock.vgi``. Each connection runs its calls in a thread of its own, one after the other;
over HTTP it has eight threads. The call of a cancelled task continues in its thread, and the next call waits for it.
Leaving the connection stops the calls that still run.
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
