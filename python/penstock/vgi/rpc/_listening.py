"""The connections of a server on a socket: a thread for each, and how they end."""

import logging
import math
import socket
import threading
import time
from typing import TYPE_CHECKING

from penstock import _core
from penstock.errors import VgiError
from penstock.vgi.rpc._transport import RpcTransport, UnixTransport

if TYPE_CHECKING:
    from penstock.vgi.rpc._server import RpcServer

__all__ = ["Listening", "idle_limit", "serve_connection"]

_log = logging.getLogger("vgi_rpc.rpc")

FIRST_BYTE = 10.0
"""Seconds from accept to the end of a TLS handshake and the first byte of a request."""
IDLE = 900.0
"""Seconds for which a client may be silent between two requests and within one, unless the server is told otherwise."""
_BACK_OFF = 0.05
"""Seconds until the next connection where the system had no thread for one."""
_SAY_AGAIN = 10.0
"""Seconds for which a trouble that goes on is not told again."""
_GRACE = 10.0
"""Seconds that calls have to finish once the server stops."""


class Listening:
    """The connections of one server: serves each that its listener lets in, in a thread of its own, and ends them all.

    Without ``threaded`` the listener has one place, and its connection is served by the caller's thread.
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
        """Take the listener over; serving closes it at the end."""
        self._server, self._listener, self._tls = server, listener, tls
        self._threaded, self._idle = threaded, idle_timeout
        self._lock = threading.Lock()
        self._open: dict[threading.Thread, UnixTransport] = {}
        self._said = -math.inf

    def serve(self) -> None:
        """Serve connections until an exception, such as that of a signal handler, ends it; then end them all."""
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
            self._open[thread] = transport
        try:
            thread.start()
        except RuntimeError as error:
            # The system has no thread for it.
            with self._lock:
                del self._open[thread]
            self._server.core.refused()
            transport.close()
            accepted.close()
            self._back_off(f"a connection cannot be served: {error}")

    def _back_off(self, why: str) -> None:
        """Wait a little, and let the log say why once in a while: a flood must not fill it."""
        now = time.monotonic()
        if now - self._said >= _SAY_AGAIN:
            self._said = now
            _log.error("%s; trying again every %d ms", why, int(_BACK_OFF * 1_000))
        time.sleep(_BACK_OFF)

    def _serve_one(self, transport: UnixTransport, accepted: "_core.VgiAccepted") -> None:
        try:
            serve_connection(self._server, transport)
        finally:
            with self._lock:
                self._open.pop(threading.current_thread(), None)
            accepted.close()

    def _stop(self) -> None:
        """Let calls finish that run, and end every connection: no thread is left when the interpreter ends."""
        self._listener.close()
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


def idle_limit(idle_timeout: float | None) -> float:
    """Give the seconds for which a client may be silent; ValueError for what is no time."""
    idle = IDLE if idle_timeout is None else idle_timeout
    if not 0 < idle < math.inf:
        raise ValueError(f"idle_timeout is a number of seconds above 0, not {idle_timeout}")
    return idle


def serve_connection(server: "RpcServer", transport: RpcTransport) -> None:
    """Serve one connection until its end; a peer that breaks the protocol ends its own connection only."""
    try:
        server.serve(transport)
    except (VgiError, OSError) as error:
        _log.warning("a connection ended: %s", error)
    finally:
        transport.close()
