"""One loop for every connection of a test process, without threads: what a test has not asked for does not happen.

A connection is aioquic's QUIC without its event loop. So a test decides what goes into which datagram, can stop in
the middle of a frame, and can vanish without a word.
"""

import selectors
import socket
import time
from collections.abc import Callable
from typing import Protocol

__all__ = ["Connection", "Reactor"]

POLL = 0.01
KEEP_ALIVE = 3.0


class Connection(Protocol):
    """What the loop drives."""

    socket: socket.socket

    def readable(self) -> None: ...

    def timer(self) -> float | None: ...

    def tick(self, now: float) -> None: ...

    def keep_alive(self) -> None: ...


class Reactor:
    """Drives connections until something has happened, or until a deadline."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self._selector = selectors.DefaultSelector()
        self._kept_alive = time.monotonic()

    def add(self, connection: Connection) -> None:
        self.connections.append(connection)
        self._selector.register(connection.socket, selectors.EVENT_READ, connection)

    def remove(self, connection: Connection) -> None:
        """Forgets a connection and closes its socket: nothing more is sent, not even a close."""
        if connection in self.connections:
            self.connections.remove(connection)
            self._selector.unregister(connection.socket)
            connection.socket.close()

    def run(self, until: Callable[[], bool], timeout: float) -> bool:
        """Whether `until` came true before `timeout` seconds were over."""
        deadline = time.monotonic() + timeout
        while True:
            if until():
                return True
            now = time.monotonic()
            if now >= deadline:
                return False
            self._turn(now, deadline)

    def _turn(self, now: float, deadline: float) -> None:
        if now - self._kept_alive > KEEP_ALIVE:
            self._kept_alive = now
            for connection in self.connections:
                connection.keep_alive()
        timers = [timer for connection in self.connections if (timer := connection.timer()) is not None]
        wait = max(0.0, min([deadline - now, POLL, *(timer - now for timer in timers)]))
        for key, _ in self._selector.select(wait):
            key.data.readable()
        now = time.monotonic()
        for connection in list(self.connections):
            timer = connection.timer()
            if timer is not None and timer <= now:
                connection.tick(now)

    def close(self) -> None:
        for connection in list(self.connections):
            self.remove(connection)
        self._selector.close()
