"""Every server that listens, how to start it, and how a client asks it over one connection.

As a program: ``python every_server.py NAME FOLDER DESCRIPTORS`` serves until its input ends, and prints where.
"""

import http.client
import os
import resource
import socket
import ssl
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from penstock import _core
from penstock.lumberjack import Receiver, Spool
from penstock.pimp import Buffer, Trigger
from penstock.pipestream import Server, Session, Status
from penstock.quicx import Daemon, Producer
from penstock.vgi import RpcServer, http_connect
from penstock.vgi.http import HttpServer
from penstock.vgi.rpc import tcp_connect, unix_connect
from penstock.vgi.rpc._listening import FIRST_BYTE, IDLE, Listening

GENEROUS = 60
"""Seconds that a busy machine may take for what should be soon."""
READ_KEY = "a key of readers"

Ask = Callable[[], object]
"""Asks over one connection; an exception where that is gone."""


@dataclass(frozen=True)
class Met:
    """A server that runs: where it listens, and how a client that trusts a CA opens a connection to it."""

    address: str
    connect: Callable[[Path | None], AbstractContextManager[Ask]]
    close: Callable[[], object]

    def raw(self, timeout: float = GENEROUS) -> socket.socket:
        """Connect, and say nothing."""
        if self.address.startswith("/"):
            unix = socket.socket(socket.AF_UNIX)
            unix.settimeout(timeout)
            unix.connect(self.address)
            return unix
        host, _, port = self.address.rpartition(":")
        return socket.create_connection((host, int(port)), timeout=timeout)


class Adding(Protocol):
    """A service of vgi."""

    def add(self, a: float) -> float:
        """Add one."""
        ...


class AddingImpl:
    """The same."""

    def add(self, a: float) -> float:
        """Add one."""
        return a + 1


def _context(ca: Path | None) -> ssl.SSLContext | None:
    return None if ca is None else ssl.create_default_context(cafile=str(ca))


def _over_http(address: str, path: str, status: int, **headers: str) -> Callable[[Path | None], Any]:
    @contextmanager
    def connect(ca: Path | None) -> Iterator[Ask]:
        context = _context(ca)
        kind = http.client.HTTPConnection
        made = kind(address, timeout=GENEROUS) if context is None else _https(address, context)
        made.connect()
        # A connection that has ended is not replaced.
        made.auto_open = 0

        def ask() -> None:
            made.request("GET", path, headers=headers)
            answer = made.getresponse()
            answer.read()
            assert answer.status == status

        try:
            yield ask
        finally:
            made.close()

    return connect


def _https(address: str, context: ssl.SSLContext) -> http.client.HTTPConnection:
    return http.client.HTTPSConnection(address, timeout=GENEROUS, context=context)


def _window(address: str) -> Callable[[Path | None], Any]:
    @contextmanager
    def connect(ca: Path | None) -> Iterator[Ask]:
        context = _context(ca)
        host, _, port = address.rpartition(":")
        with ExitStack() as stack:
            sock = stack.enter_context(socket.create_connection((host, int(port)), timeout=GENEROUS))
            if context is not None:
                sock = stack.enter_context(context.wrap_socket(sock, server_hostname=host))

            def ask() -> None:
                sock.sendall(b"2W" + struct.pack(">I", 1) + b"2J" + struct.pack(">II", 1, 2) + b"{}")
                answer = b""
                while len(answer) < 6:
                    more = sock.recv(6 - len(answer))
                    assert more, "the receiver closed the connection"
                    answer += more
                assert answer == b"2A\0\0\0\x01"

            yield ask

    return connect


def _stats(address: str) -> Callable[[Path | None], Any]:
    @contextmanager
    def connect(ca: Path | None) -> Iterator[Ask]:
        options: dict[str, Any] = {"socket": address} if address.startswith("/") else {"address": address}
        if ca is not None:
            options["ca"] = ca
        with Producer(**options) as producer:
            yield lambda: producer.stats()

    return connect


def _adding_over_http(address: str) -> Callable[[Path | None], Any]:
    def connect(ca: Path | None) -> Any:
        trusted = {} if ca is None else {"ca": ca}
        return _asks(http_connect(Adding, f"{'http' if ca is None else 'https'}://{address}", **trusted))

    return connect


def _adding(address: str) -> Callable[[Path | None], Any]:
    def connect(ca: Path | None) -> Any:
        if address.startswith("/"):
            return _asks(unix_connect(Adding, address))
        host, _, port = address.rpartition(":")
        return _asks(tcp_connect(Adding, host, int(port), ca=ca))

    return connect


@contextmanager
def _asks(connected: AbstractContextManager[Adding]) -> Iterator[Ask]:
    with connected as service:

        def ask() -> None:
            assert service.add(a=1.0) == 2.0

        yield ask


def _entity(address: str) -> Callable[[Path | None], Any]:
    @contextmanager
    def connect(ca: Path | None) -> Iterator[Ask]:
        with Session.connect(address, ca=ca) as session:

            def ask() -> None:
                assert session.send(b"x").wait(GENEROUS) is Status.COMPLETE

            yield ask

    return connect


Started = tuple[str, Callable[[], object]]
"""Where a server listens, and what closes it."""


@dataclass(frozen=True)
class Given:
    """What a server is started with: its certificate's files, where it has one, and options of its own."""

    stack: ExitStack
    folder: Path
    tls: dict[str, Any]
    options: dict[str, Any]


def _lumberjack(given: Given) -> Started:
    receiver = Receiver(spool=given.folder / "spool", **given.tls, **given.options)
    given.stack.callback(receiver.close, 0)
    return receiver.address, receiver.close


def _readers(given: Given) -> Started:
    spool = given.stack.enter_context(Spool(given.folder / "spool"))
    address, _ = spool.serve(read_key=READ_KEY, state=given.folder, **given.tls)
    return address, spool.close


def _quicx(given: Given) -> Started:
    listens: dict[str, Any] = {"listen": None, "tls_listen": "127.0.0.1:0", **given.tls} if given.tls else {}
    daemon = given.stack.enter_context(Daemon(**listens, **given.options))
    address = daemon.tls_address if given.tls else daemon.address
    assert address is not None
    return address, daemon.close


def _quicx_unix(given: Given) -> Started:
    path = str(given.folder / "socket")
    daemon = given.stack.enter_context(Daemon(None, socket=path, **given.options))
    return path, daemon.close


def _pimp(given: Given) -> Started:
    buffer = given.stack.enter_context(Buffer(behind_proxy=not given.tls, **given.tls, **given.options))
    return buffer.address, buffer.close


def _trigger(given: Given) -> Started:
    trigger = given.stack.enter_context(Trigger(lambda *_: None, allowed_hosts=["127.0.0.1"]))
    server = given.stack.enter_context(trigger.serve(behind_proxy=not given.tls, **given.tls))
    return server.address, server.close


def _metrics(given: Given) -> Started:
    daemon = given.stack.enter_context(Daemon(metrics="127.0.0.1:0"))
    address = daemon.metrics_address
    assert address is not None
    return address, daemon.close


def _vgi_http(given: Given) -> Started:
    server = given.stack.enter_context(HttpServer(RpcServer(Adding, AddingImpl()), **given.tls))
    return f"127.0.0.1:{server.port}", server.close


def _threads(
    stack: ExitStack, server: RpcServer, listener: "_core.VgiListener", tls: "_core.VgiTls | None"
) -> Callable[[], None]:
    listening = Listening(server, listener, threaded=True, idle_timeout=IDLE, tls=tls)
    serving = threading.Thread(target=listening.serve, daemon=True)
    serving.start()

    def close() -> None:
        listener.close()
        serving.join(GENEROUS)
        assert not serving.is_alive()

    stack.callback(close)
    return close


def _vgi_tcp(given: Given) -> Started:
    server = RpcServer(Adding, AddingImpl())
    made = _core.VgiTls.server(given.tls["cert"], given.tls["key"]) if given.tls else None
    listener = _core.VgiListener.tcp(server.core, "127.0.0.1:0", first_byte=FIRST_BYTE, tls=made, **given.options)
    return f"127.0.0.1:{listener.port}", _threads(given.stack, server, listener, made)


def _vgi_unix(given: Given) -> Started:
    server, path = RpcServer(Adding, AddingImpl()), str(given.folder / "vgi")
    listener = _core.VgiListener.unix(server.core, path, first_byte=FIRST_BYTE, **given.options)
    return path, _threads(given.stack, server, listener, None)


def _pipestream(given: Given) -> Started:
    server = Server(sink=given.folder / "sink", state_dir=given.folder, **given.tls)
    given.stack.callback(server.close, 0)
    return server.address, server.close


_SERVERS: dict[str, tuple[Callable[[Given], Started], Callable[[str], Callable[[Path | None], Any]]]] = {
    "lumberjack": (_lumberjack, _window),
    "readers": (_readers, lambda address: _over_http(address, "/v1/spool", 200, Authorization=f"Bearer {READ_KEY}")),
    "quicx": (_quicx, _stats),
    "quicx-unix": (_quicx_unix, _stats),
    "pimp": (_pimp, lambda address: _over_http(address, "/nothing", 404)),
    "trigger": (_trigger, lambda address: _over_http(address, "/nothing", 405)),
    "metrics": (_metrics, lambda address: _over_http(address, "/healthz", 200)),
    "vgi-http": (_vgi_http, _adding_over_http),
    "vgi-tcp": (_vgi_tcp, _adding),
    "vgi-unix": (_vgi_unix, _adding),
    "pipestream": (_pipestream, _entity),
}
ENCRYPTED = ("lumberjack", "readers", "quicx", "pimp", "trigger", "vgi-http", "vgi-tcp", "pipestream")
"""Servers with a certificate."""
PLAIN = ("lumberjack", "quicx", "quicx-unix", "pimp", "trigger", "metrics", "vgi-http", "vgi-tcp", "vgi-unix")
"""Servers without one."""


def start(name: str, stack: ExitStack, folder: Path, tls: dict[str, Any], **options: Any) -> Met:
    """Start a server, with a certificate where one is given; the stack ends it."""
    starts, client = _SERVERS[name]
    address, close = starts(Given(stack, folder, tls, options))
    return Met(address, client(address), close)


def meet(name: str, address: str) -> Met:
    """Give a server of another process."""
    return Met(address, _SERVERS[name][1](address), lambda: None)


def main() -> None:
    """Serve until the input ends, with so many descriptors."""
    most = int(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    _core.init_logging("info", "text")
    with ExitStack() as stack:
        print(start(sys.argv[1], stack, Path(sys.argv[2]), {}).address, flush=True)
        sys.stdin.read()
        # Threads of silent connections are not waited for.
        os._exit(0)


if __name__ == "__main__":
    main()
