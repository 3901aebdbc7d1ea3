"""The connections of a server on a socket, each in a thread of its own, and their end."""

import logging
import math
import socket
import threading
from typing import TYPE_CHECKING

from penstock import _core
from penstock.errors import VgiError
from penstock.vgi.rpc._transport import RpcTransport, UnixTransport

if TYPE_CHECKING:
    from penstock.vgi.rpc._server import RpcServer

__all__ = ["Listening", "idle_limit", "serve_connection"]

_log = logging.getLogger("vgi_rpc.rpc")

FIRST_BYTE = _core.VgiListener.FIRST_BYTE
"""Seconds from accept to the end of the TLS handshake and the first byte of a request."""
IDLE = _core.VgiListener.IDLE
"""The default number of seconds for which a client may be silent, between two requests or within one."""


class Listening:
    """The connections of one server: each is served in a thread of its own, and all end with the server.

    Without ``threaded`` the listener admits one connection at a time, which the thread of ``serve`` itself serves.
    """

    def __init__(
        self,
        server: "RpcServer",
        listener: "_core.VgiListener",
        *,
        threaded: bool,
        idle_timeout: float,
        tls: "_core.VgiTls | None" = None,
    ) -> None:
        """Own the listener: ``serve`` closes it at its end."""
        self._server, self._listener, self._tls = server, listener, tls
        self._threaded, self._idle = threaded, idle_timeout
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()

    def serve(self) -> None:
        """Serve connections until an exception, such as that of a signal handler, ends the wait; then end them all."""
        try:
            while (accepted := self._listener.accept()) is not None:
                self._serve(accepted)
        finally:
            self._stop()

    def _serve(self, accepted: "_core.VgiAccepted") -> None:
        transport = UnixTransport(socket.socket(fileno=accepted.detach()), self._tls)
        transport.first_byte, transport.idle = accepted.time_left, self._idle
        if not self._threaded:
            self._serve_one(transport, accepted)
            return
        thread = threading.Thread(target=self._serve_one, args=(transport, accepted), name="vgi-serve", daemon=True)
        with self._lock:
            self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError as error:
            # The system cannot start another thread.
            with self._lock:
                self._threads.discard(thread)
            self._server.core.refused()
            transport.close()
            accepted.close()
            if self._listener.back_off():
                _log.error("a connection cannot be served: %s; the next one is accepted after a pause", error)

    def _serve_one(self, transport: UnixTransport, accepted: "_core.VgiAccepted") -> None:
        try:
            serve_connection(self._server, transport)
        finally:
            accepted.close()
            with self._lock:
                self._threads.discard(threading.current_thread())

    def _stop(self) -> None:
        """Let running calls finish and end all connections, so that no thread is left when the interpreter exits."""
        with self._lock:
            left = set(self._threads)
        cut_off = self._listener.drain()
        if cut_off:
            _log.warning("%d calls did not finish within %d s of the stop", cut_off, int(_core.VgiListener.GRACE))
            return
        # Their connections have ended, so the threads end now.
        for thread in left:
            thread.join()


def idle_limit(idle_timeout: float | None) -> float:
    """Return the seconds for which a client may be silent; raise ValueError unless they are finite and above 0."""
    idle = IDLE if idle_timeout is None else idle_timeout
    if not 0 < idle < math.inf:
        raise ValueError(f"idle_timeout must be a number of seconds above 0, not {idle_timeout}")
    return idle


def serve_connection(server: "RpcServer", transport: RpcTransport) -> None:
    """Serve one connection until its end; a peer that violates the protocol ends only its own connection."""
    try:
        server.serve(transport)
    except (VgiError, OSError) as error:
        _log.warning("a connection ended: %s", error)
    finally:
        transport.close()
