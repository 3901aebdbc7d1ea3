"""Ways to serve and to connect: in this process, over sockets, and over standard input and output."""

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
    # A ClientExternalConfig, which only fetches, is for the client's end alone.
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
    """Serve in a thread of this process, over pipes, and yield a proxy; meant for tests and experiments.

    Args:
        protocol: The service, a ``typing.Protocol``.
        implementation: The object with the service's methods.
        on_log: Called with each log message of the server; by default they are dropped.
        external_location: How to handle external batches, at both ends; a ClientExternalConfig is for the client only.
        ipc_validation: How thoroughly to check batches; by default in full.

    Yields:
        A proxy with the service's methods, which accept keyword arguments only.

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
    """Serve in a thread of this process, over a pair of Unix sockets, and yield a proxy.

    The arguments are those of ``serve_pipe``.
    """
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
    """Start a worker as a child process, yield a proxy of it, and end the worker at the end of the block.

    Args:
        protocol: The service, a ``typing.Protocol``.
        cmd: The command of the worker, which serves on its standard input and output.
        on_log: Called with each log message of the worker; by default they are dropped.
        external_location: How to fetch batches that the worker put into an object store.
        stderr: Where the worker's standard error goes; by default where this process's goes.
        stderr_logger: The logger for StderrMode.PIPE, by default ``vgi_rpc.subprocess.stderr``.
        ipc_validation: How thoroughly to check the batches of streams.

    Yields:
        A proxy with the service's methods, which accept keyword arguments only.
    """
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
    """Connect to the Unix socket of a server, and yield a proxy.

    Args:
        protocol: The service, a ``typing.Protocol``.
        path: The path of the socket.
        on_log: Called with each log message of the server; by default they are dropped.
        external_location: How to fetch batches that the server put into an object store.
        ipc_validation: How thoroughly to check the batches of streams.

    Yields:
        A proxy with the service's methods, which accept keyword arguments only.

    Raises:
        OSError: If the connection fails.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError as error:
        connection.close()
        # The system's error does not contain the path.
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
    """Connect to the TCP port of a server, and yield a proxy.

    The connection uses TLS if ``fingerprint``, ``ca`` or ``system_ca`` names the servers to trust, and is unencrypted
    otherwise.

    Args:
        protocol: The service, a ``typing.Protocol``.
        host: The host of the server.
        port: The port of the server.
        on_log: Called with each log message of the server; by default they are dropped.
        external_location: How to fetch batches that the server put into an object store.
        ipc_validation: How thoroughly to check the batches of streams.
        fingerprint: The fingerprint of the trusted certificate, ``sha256:HEX``.
        ca: The path of the trusted CA certificates, PEM.
        system_ca: Whether to trust the system's CAs.
        cert: The path of the client's own certificate, PEM; only with TLS.
        key: The path of its key.

    Yields:
        A proxy with the service's methods, which accept keyword arguments only.

    Raises:
        OSError: If the connection fails.
        ValueError: If ``cert`` or ``key`` is given without TLS.
    """
    tls = None
    if fingerprint is not None or ca is not None or system_ca:
        tls = _core.VgiTls.client(host, fingerprint=fingerprint, ca=ca, system_ca=system_ca, cert=cert, key=key)
    elif cert is not None or key is not None:
        raise ValueError("cert and key require TLS: set fingerprint, ca or system_ca")
    connection = socket.create_connection((host, port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.settimeout(None)
    with _connected(protocol, UnixTransport(connection, tls), on_log, external_location, ipc_validation) as proxy:
        yield proxy


def serve_stdio(server: RpcServer) -> None:
    """Serve over standard input and output until the input ends.

    Meanwhile, the output of methods' ``print`` goes to standard error, because standard output carries the protocol.
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
        pass  # The client has gone, so nothing waits for an answer.
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
    """Serve on a Unix socket until the process ends.

    Only this user may connect (mode 0600). A socket file that a dead server left behind is replaced. A new connection
    is closed if its first byte takes longer than 10 s.

    Args:
        server: The server.
        path: The path of the socket.
        threaded: Whether to serve each connection in a thread of its own; by default they are served one after the
            other.
        max_connections: The most connections at a time with ``threaded``, 1,024 by default; further ones wait.
        idle_timeout: Seconds for which a client may be silent, between two requests or within one, before its
            connection is closed; 900 by default.
        announce: Called once the socket listens.

    Raises:
        FileExistsError: If another server listens at the path, or another file exists there.
        ValueError: If ``idle_timeout`` is not a finite number above 0.
    """
    idle = idle_limit(idle_timeout)
    # A single thread has one place. Further connections wait in the system's backlog, where no timeout runs.
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
    """Serve on a TCP port until the process ends, and print ``TCP:HOST:PORT`` once it listens.

    With ``cert`` and ``key`` the server uses TLS, and the printed line ends with `` fingerprint sha256:HEX``. A
    replaced certificate is reloaded within 5 s: new connections get it, and open ones continue. A new connection is
    closed if its TLS handshake and first byte take longer than 10 s.

    Args:
        server: The server.
        host: The address to listen on.
        port: The port; 0, the default, picks a free one.
        max_connections: The most connections at a time, 1,024 by default; further ones wait. One address other than
            loopback may have seven eighths of them, or 64 if that is more.
        idle_timeout: Seconds for which a client may be silent, between two requests or within one, before its
            connection is closed; 900 by default.
        cert: The path of the certificate chain, PEM.
        key: The path of its key.
        client_ca: The path of CA certificates, PEM; only clients with a certificate of such a CA are accepted.

    Raises:
        ValueError: If ``cert`` and ``key`` are not given together, ``client_ca`` is given without them, or
            ``idle_timeout`` is not a finite number above 0.
    """
    if (cert is None) != (key is None) or (cert is None and client_ca is not None):
        raise ValueError("cert and key must be used together, and client_ca requires both")
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
        print(f"TCP:{host}:{listener.port}{pinned}", flush=True)  # noqa: T201 -- clients find the server by this line
        listening.serve()
