"""Listening sockets of a server: which connections it takes, for how long, and how it ends."""

import contextlib
import errno
import fcntl
import logging
import math
import os
import socket
import stat
import threading
import time
from collections import Counter
from collections.abc import Iterator
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import _core
from penstock.errors import VgiError
from penstock.vgi.rpc._transport import RpcTransport, UnixTransport

if TYPE_CHECKING:
    from penstock.vgi.rpc._server import RpcServer

__all__ = ["BACKLOG", "Listening", "serve_connection", "unix_listener"]

_log = logging.getLogger("vgi_rpc.rpc")

CONNECTIONS = 1_024
"""Connections of a server at a time, unless it is told otherwise."""
FIRST_BYTE = 10.0
"""Seconds from accept to the end of a TLS handshake and the first byte of a request."""
BACKLOG = 128
"""Connections that may wait to be accepted."""
IDLE = 900.0
"""Seconds for which a client may be silent between two requests and within one, unless the server is told otherwise."""
_BACK_OFF = 0.05
"""Seconds until the next attempt where the system had no descriptor, memory or thread for a connection."""
_SAY_AGAIN = 10.0
"""Seconds for which a trouble that goes on is not told again."""
_GRACE = 10.0
"""Seconds that calls have to finish once the server stops."""
_PER_CONNECTION = 3
"""Descriptors of a connection: the socket, and the two that the core reads and writes."""
_TCP_KEEP_ALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
_NO_LISTENER = frozenset({errno.EBADF, errno.EINVAL, errno.ENOTSOCK, errno.EOPNOTSUPP})
"""Nothing can ever be accepted: the socket is closed, or does not listen. Any other trouble may pass."""
_GONE = frozenset({errno.ECONNABORTED, errno.EPROTO, errno.ECONNRESET})
"""The client left before its connection was accepted."""


class Listening:
    """The connections of one server: accepts them within limits, serves each in a thread, ends them all.

    ``max_connections`` are served at a time, and seven eighths of them at most for one address of TCP; loopback has no
    share of its own, since a proxy may stand there. A connection over its address's share is closed. One beyond
    ``max_connections`` waits in the system's queue.
    """

    def __init__(
        self,
        server: "RpcServer",
        *,
        threaded: bool,
        max_connections: int | None = None,
        idle_timeout: float | None = None,
        tls: "_core.VgiTls | None" = None,
    ) -> None:
        """Lower ``max_connections`` (1,024 by default) to what the limit of descriptors allows, with a warning."""
        self._idle = IDLE if idle_timeout is None else idle_timeout
        if not 0 < self._idle < math.inf:
            raise ValueError(f"idle_timeout is a number of seconds above 0, not {idle_timeout}")
        self._server, self._tls, self._threaded = server, tls, threaded
        wanted = CONNECTIONS if max_connections is None else max_connections
        self._descriptors = _core.Descriptors("vgi", wanted, _PER_CONNECTION)
        most = max(1, self._descriptors.connections)
        self._share = max(1, most - most // 8)
        self._room = threading.Semaphore(most)
        self._lock = threading.Lock()
        self._open: dict[threading.Thread, UnixTransport] = {}
        self._addresses: Counter[str] = Counter()
        self._said: dict[str, float] = {}

    def serve(self, listener: socket.socket) -> None:
        """Accept connections until an exception, such as that of a signal handler, ends it; then end them all."""
        try:
            while True:
                self._room.acquire()
                accepted = False
                try:
                    accepted = self._accept(listener)
                finally:
                    if not accepted:
                        self._room.release()
        finally:
            self._stop()

    def _accept(self, listener: socket.socket) -> bool:
        """Accept one connection; whether it has taken its place."""
        try:
            connection, peer = listener.accept()
        except OSError as error:
            if error.errno in _NO_LISTENER:
                raise
            if error.errno not in _GONE:
                self._back_off(f"no connection can be accepted: {error.strerror}")
            return False
        local = connection.family == socket.AF_UNIX
        address = "" if local else _address(peer[0])
        if not self._within_share(address):
            connection.close()
            return False
        try:
            if not local:
                _tune(connection)
            transport = UnixTransport(connection, self._tls)
            transport.first_byte, transport.idle = FIRST_BYTE, self._idle
            self._start(transport, address)
        except (OSError, RuntimeError) as error:
            # The client hung up, or the system has no thread for it.
            self._server.core.refused()
            connection.close()
            self._leave(address)
            self._back_off(f"a connection cannot be served: {error}")
            return False
        return True

    def _within_share(self, address: str) -> bool:
        with self._lock:
            if address and self._addresses[address] >= self._share:
                if self._says("share"):
                    _log.warning("a connection of %s was closed: the address has its %d already", address, self._share)
                self._server.core.refused()
                return False
            if address:
                self._addresses[address] += 1
        return True

    def _leave(self, address: str) -> None:
        with self._lock:
            if address:
                self._addresses[address] -= 1
                if not self._addresses[address]:
                    del self._addresses[address]

    def _says(self, trouble: str) -> bool:
        """Whether the log hears of it, once in a while: a log that a flood can fill is one more thing to attack."""
        now = time.monotonic()
        if now - self._said.get(trouble, -math.inf) < _SAY_AGAIN:
            return False
        self._said[trouble] = now
        return True

    def _back_off(self, why: str) -> None:
        """Wait a little, and let the log say why."""
        if self._says(why):
            _log.error("%s; trying again every %d ms", why, int(_BACK_OFF * 1_000))
        time.sleep(_BACK_OFF)

    def _start(self, transport: UnixTransport, address: str) -> None:
        if not self._threaded:
            self._serve_one(transport, address)
            return
        thread = threading.Thread(target=self._serve_one, args=(transport, address), name="vgi-serve", daemon=True)
        with self._lock:
            self._open[thread] = transport
        try:
            thread.start()
        except RuntimeError:
            with self._lock:
                del self._open[thread]
            raise

    def _serve_one(self, transport: UnixTransport, address: str) -> None:
        try:
            serve_connection(self._server, transport)
        finally:
            with self._lock:
                self._open.pop(threading.current_thread(), None)
            self._leave(address)
            self._room.release()

    def _stop(self) -> None:
        """Let calls finish that run, and end every connection: no thread is left when the interpreter ends."""
        with self._lock:
            left = dict(self._open)
        for transport in left.values():
            # Nothing more is read; the answer of a call that runs still goes out.
            transport.end_input()
        deadline = time.monotonic() + _GRACE
        for thread in left:
            thread.join(max(0.0, deadline - time.monotonic()))
        for thread, transport in left.items():
            if thread.is_alive():
                _log.warning("a call did not finish within %d s of the stop", int(_GRACE))
                transport.close()


def serve_connection(server: "RpcServer", transport: RpcTransport) -> None:
    """Serve one connection until its end; a peer that breaks the protocol ends its own connection only."""
    try:
        server.serve(transport)
    except (VgiError, OSError) as error:
        _log.warning("a connection ended: %s", error)
    finally:
        transport.close()


def _address(host: str) -> str:
    """Give what a share is counted by: an IPv4 address, a /64 of IPv6, nothing for loopback."""
    address = ip_address(host.partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_loopback:
        return ""
    return str(address) if address.version == 4 else f"{IPv6Address(int(address) >> 64 << 64)}/64"


def _tune(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _TCP_KEEP_ALIVE:
        # Not every system has a name for each of them.
        if (option := getattr(socket, name, None)) is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


@contextlib.contextmanager
def unix_listener(path: str) -> Iterator[socket.socket]:
    """Listen on a Unix socket that only this user may connect to, and remove it at the end.

    A socket that a dead server left behind is replaced. FileExistsError where the path is another file, or where a
    server listens there.
    """
    place = Path(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        with _turn(place.parent):
            _clear(place)
            # Linux gives the file the mode of the socket: there is no instant in which others may connect.
            os.fchmod(listener.fileno(), 0o600)
            listener.bind(path)
            place.chmod(0o600)
            listener.listen(BACKLOG)
            made = place.lstat()
        try:
            yield listener
        finally:
            with contextlib.suppress(FileNotFoundError):
                found = place.lstat()
                if (found.st_dev, found.st_ino) == (made.st_dev, made.st_ino):
                    place.unlink()


def _clear(place: Path) -> None:
    try:
        mode = place.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(f"{place} is there already, and no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        # A server whose queue is full is alive too.
        client.setblocking(False)
        refused = client.connect_ex(str(place))
    if refused not in (errno.ECONNREFUSED, errno.ENOENT):
        raise FileExistsError(f"{place}: another server listens there")
    place.unlink(missing_ok=True)


@contextlib.contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Keep other servers of this folder from looking at a socket before it listens."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # A file system without locks has servers that start one after the other.
        with contextlib.suppress(OSError):
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)
