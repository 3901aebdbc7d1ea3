"""Ways to serve and to connect: in this process, over sockets, over standard input and output."""

import contextlib
import io
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from penstock import _core
from penstock.vgi.rpc import _listening
from penstock.vgi.rpc._client import OnLog, RpcConnection
from penstock.vgi.rpc._listening import Listening, idle_limit, serve_connection
from penstock.vgi.rpc._server import RpcServer
from penstock.vgi.rpc._transport import (
    PipeTransport,
    RpcTransport,
    StderrMode,
    SubprocessTransport,
    UnixTransport,
    make_pipe_pair,
    make_unix_pair,
)
from penstock.vgi.utils import IpcValidation

if TYPE_CHECKING:
    from penstock.vgi._external import ExternalConfig

__all__ = [
    "connect",
    "serve_pipe",
    "serve_stdio",
    "serve_tcp",
    "serve_unix",
    "serve_unix_pipe",
    "tcp_connect",
    "unix_connect",
]

P = TypeVar("P")

_log = logging.getLogger("vgi_rpc.rpc")


@contextlib.contextmanager
def _served(
    protocol: type[P],
    implementation: object,
    pair: tuple[RpcTransport, RpcTransport],
    on_log: OnLog | None,
    external: "ExternalConfig | None",
    ipc_validation: IpcValidation | None,
) -> Iterator[P]:
    from penstock.vgi.external import ServerExternalConfig

    ours, theirs = pair
    validation = ipc_validation or IpcValidation.FULL
    # One that only fetches is the caller's.
    stores = external if isinstance(external, ServerExternalConfig) else None
    server = RpcServer(protocol, implementation, external_location=stores, ipc_validation=validation)
    thread = threading.Thread(target=serve_connection, args=(server, theirs), name="vgi-serve", daemon=True)
    thread.start()
    try:
        connection = RpcConnection(protocol, ours, on_log, external_location=external, ipc_validation=validation)
        with connection as proxy:
            yield proxy
    finally:
        ours.close()
        thread.join()


@contextlib.contextmanager
def serve_pipe(
    protocol: type[P],
    implementation: object,
    *,
    on_log: OnLog | None = None,
    external_location: "ExternalConfig | None" = None,
    ipc_validation: IpcValidation | None = None,
) -> Iterator[P]:
    """Serve in a thread of this process, over pipes, and give a proxy: for tests and trials.

    ```python
    >>> from typing import Protocol
    >>> from penstock.vgi import serve_pipe
    >>> class Calculator(Protocol):
    ...     def add(self, a: float, b: float) -> float: ...
    >>> class CalculatorImpl:
    ...     def add(self, a: float, b: float) -> float:
    ...         return a + b
    >>> with serve_pipe(Calculator, CalculatorImpl()) as calculator:
    ...     calculator.add(a=2.0, b=3.0)
    5.0

    ```
    """
    with _served(protocol, implementation, make_pipe_pair(), on_log, external_location, ipc_validation) as proxy:
        yield proxy


@contextlib.contextmanager
def serve_unix_pipe(
    protocol: type[P],
    implementation: object,
    *,
    on_log: OnLog | None = None,
    external_location: "ExternalConfig | None" = None,
    ipc_validation: IpcValidation | None = None,
) -> Iterator[P]:
    """Serve in a thread of this process, over a pair of Unix sockets, and give a proxy."""
    with _served(protocol, implementation, make_unix_pair(), on_log, external_location, ipc_validation) as proxy:
        yield proxy


@contextlib.contextmanager
def _connected(
    protocol: type[P],
    transport: RpcTransport,
    on_log: OnLog | None,
    external: "ExternalConfig | None",
    ipc_validation: IpcValidation,
) -> Iterator[P]:
    try:
        connection = RpcConnection(
            protocol, transport, on_log, external_location=external, ipc_validation=ipc_validation
        )
        with connection as proxy:
            yield proxy
    finally:
        transport.close()


@contextlib.contextmanager
def connect(
    protocol: type[P],
    cmd: list[str],
    *,
    on_log: OnLog | None = None,
    external_location: "ExternalConfig | None" = None,
    stderr: StderrMode = StderrMode.INHERIT,
    stderr_logger: logging.Logger | None = None,
    ipc_validation: IpcValidation = IpcValidation.FULL,
) -> Iterator[P]:
    """Start a worker as a child process, give a proxy of it, and end the worker at the end of the block."""
    transport = SubprocessTransport(cmd, stderr=stderr, stderr_logger=stderr_logger)
    with _connected(protocol, transport, on_log, external_location, ipc_validation) as proxy:
        yield proxy


@contextlib.contextmanager
def unix_connect(
    protocol: type[P],
    path: str,
    *,
    on_log: OnLog | None = None,
    external_location: "ExternalConfig | None" = None,
    ipc_validation: IpcValidation = IpcValidation.FULL,
) -> Iterator[P]:
    """Connect to the Unix socket of a server, and give a proxy."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError as error:
        connection.close()
        # The system does not say which.
        error.filename = path
        raise
    with _connected(protocol, UnixTransport(connection), on_log, external_location, ipc_validation) as proxy:
        yield proxy


@contextlib.contextmanager
def tcp_connect(
    protocol: type[P],
    host: str,
    port: int,
    *,
    on_log: OnLog | None = None,
    external_location: "ExternalConfig | None" = None,
    ipc_validation: IpcValidation = IpcValidation.FULL,
    fingerprint: str | None = None,
    ca: str | os.PathLike[str] | None = None,
    system_ca: bool = False,
    cert: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
) -> Iterator[P]:
    """Connect to the TCP port of a server, and give a proxy. The bytes are those of a Unix socket.

    They go over TLS where one of ``fingerprint``, ``ca`` and ``system_ca`` says whom to trust; ``cert`` and ``key`` are
    the caller's own certificate then.
    """
    tls = None
    if fingerprint is not None or ca is not None or system_ca:
        tls = _core.VgiTls.client(host, fingerprint=fingerprint, ca=ca, system_ca=system_ca, cert=cert, key=key)
    elif cert is not None or key is not None:
        raise ValueError("a certificate is for TLS: say whom to trust")
    connection = socket.create_connection((host, port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.settimeout(None)
    with _connected(protocol, UnixTransport(connection, tls), on_log, external_location, ipc_validation) as proxy:
        yield proxy


def serve_stdio(server: RpcServer) -> None:
    """Serve over standard input and output until the input ends.

    What methods print goes to standard error meanwhile: the output is the protocol's.
    """
    if sys.stdin.isatty() or sys.stdout.isatty():
        _log.warning("a worker speaks Arrow on its standard input and output, and one of them is a terminal")
    sys.stdout.flush()
    reader, writer = os.dup(0), os.dup(1)
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        server.serve(PipeTransport(io.FileIO(reader, "rb"), io.FileIO(writer, "wb")))
    except BrokenPipeError:
        pass  # The caller is gone, and nobody waits for an answer.
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def serve_unix(
    server: RpcServer,
    path: str,
    *,
    threaded: bool = False,
    max_connections: int | None = None,
    idle_timeout: float | None = None,
    announce: Callable[[], object] | None = None,
) -> None:
    """Serve on a Unix socket until the process ends: one connection after the other, or many in threads.

    Only this user may connect (mode 0600). A socket that a dead server left behind is replaced; FileExistsError where
    another file is there, or where a server listens. ``max_connections`` (1,024 by default) are served at a time;
    others wait. A connection without a byte for 10 s is closed, and later one whose client is silent for
    ``idle_timeout`` seconds (900), between two requests or within one. ``announce`` is called once it listens.
    """
    idle = idle_limit(idle_timeout)
    # One place where there is one thread: others wait in the system, and their time does not run.
    places = max_connections if threaded else 1
    first_byte = _listening.FIRST_BYTE
    listener = _core.VgiListener.unix(server.core, path, first_byte=first_byte, max_connections=places)
    listening = Listening(server, listener, threaded=threaded, idle_timeout=idle)
    with contextlib.closing(listener):
        if announce is not None:
            announce()
        listening.serve()


def serve_tcp(
    server: RpcServer,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    max_connections: int | None = None,
    idle_timeout: float | None = None,
    cert: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
    client_ca: str | os.PathLike[str] | None = None,
) -> None:
    """Serve on a TCP port until the process ends; ``TCP:HOST:PORT`` on standard output says where.

    With ``cert`` and ``key`` over TLS, and then ``client_ca`` may say whose callers are let in; the line ends with
    `` fingerprint sha256:HEX`` then. ``max_connections`` (1,024 by default) are served at a time, seven eighths at
    most (or 64) for one address beyond loopback. A connection has 10 s for its TLS handshake and its first byte, and is
    closed later where its client is silent for ``idle_timeout`` seconds (900), between two requests or within one. A
    certificate that is replaced is read within 5 s; new connections are shown it, and open ones go on.
    """
    if (cert is None) != (key is None) or (cert is None and client_ca is not None):
        raise ValueError("a certificate and its key go together, and client_ca needs both")
    tls = None if cert is None or key is None else _core.VgiTls.server(cert, key, client_ca)
    pinned = "" if tls is None else f" fingerprint {tls.fingerprint}"
    idle = idle_limit(idle_timeout)
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    first_byte = _listening.FIRST_BYTE
    listener = _core.VgiListener.tcp(
        server.core, address, first_byte=first_byte, max_connections=max_connections, tls=tls
    )
    listening = Listening(server, listener, threaded=True, idle_timeout=idle, tls=tls)
    with contextlib.closing(listener):
        print(f"TCP:{host}:{listener.port}{pinned}", flush=True)  # noqa: T201 -- it is how a caller finds it
        listening.serve()
