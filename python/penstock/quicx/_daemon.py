"""The daemon, which is the queue, in this process: for tests, notebooks and ``penstock quicx start``."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import NoReturn, Self

from penstock import _core
from penstock.quicx._options import PathLike, Policy, start_options
from penstock.quicx._producer import Stats

__all__ = ["Daemon", "DaemonCounters"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonCounters:
    """The counters of a daemon since its start: `Daemon.counters`."""

    connections: int
    """Connections that were accepted."""
    submitted: int
    """Tasks that were accepted."""
    merged: int
    """Submits that were merged into an equal task (`Policy.unique`)."""
    refused: int
    """Frames that were refused with an ERROR."""
    delivered: int
    """Deliveries to workers."""
    done: int
    """Tasks that are done."""
    failed: int
    """Tasks that have failed finally."""
    retried: int
    """Failures that were followed by a retry."""
    lost: int
    """Tasks that were returned to the queue because their worker's connection ended."""
    late: int
    """Tasks that were returned to the queue because of a timeout."""
    died: int
    """Tasks that were put on the dead list."""
    dead: int
    """Tasks that are on the dead list now."""


class Daemon:
    """A task queue, which listens as soon as it is made. As a context manager it stops at the end.

    Args:
        listen: ``HOST:PORT`` to listen on without TLS; port 0 picks a free one; None: no such port. The protocol has no
            passwords: any client that can connect may submit and receive tasks.
        tls_listen: ``HOST:PORT`` to listen on with TLS. By default there is no such port.
        cert: The certificate for TLS (PEM file), with ``key``; by default one for localhost is made once and kept.
        key: The certificate's private key (PEM file).
        client_ca: A CA (PEM file) that must have signed the certificates of TLS clients. By default they need none.
        socket: The path of a Unix socket, which only the user of this process may use. By default there is none.
        journal: A folder in which accepted tasks are stored, so that they survive a restart. By default tasks are lost
            with the process.
        pool_bytes: The bytes of the pool; by default 64 MiB.
        size_classes: The sizes of its blocks in bytes: ascending multiples of 16, up to 1 MiB. By default the powers of
            two from 16 to 4,096. A task's type and payload and one more byte must fit into the largest block.
        task_timeout: Seconds that a worker may hold a task without a heartbeat before the task is delivered again; 0:
            indefinitely.
        max_attempts: The number of deliveries after which a task is dead.
        heartbeat_interval: Seconds between heartbeats to idle workers and producers; three without an answer end the
            connection. By default none are sent.
        policies: The policies of task types, by type.
        allow_types: The accepted types. By default all are.
        max_connections: The most connections; further ones are closed at once. If the system allows fewer file
            descriptors, the daemon accepts fewer connections and logs that.
        max_connections_per_address: The most connections from one address, where an IPv6 address stands for its /64;
            further ones are closed at once. By default seven eighths of ``max_connections``, or 64 if that is more.
        idle_timeout: Seconds of silence after which a connection is closed that has neither submitted nor received
            anything; 0: never. The first byte must arrive within 10 seconds of the connection, including the handshake.
        metrics: ``HOST:PORT`` on which ``/metrics`` for Prometheus and ``/healthz`` are served over HTTP. By default
            they are not served.
        state_dir: The folder of the development certificate; by default the state folder of the command line.

    >>> from penstock.quicx import Producer
    >>> with Daemon() as daemon, Producer(daemon.address) as producer:
    ...     producer.submit("mail", b"hello")
    ...     daemon.stats.queue_depth
    1
    1
    """

    __slots__ = ("_address", "_native", "_tls")

    def __init__(
        self,
        listen: str | None = "127.0.0.1:0",
        *,
        tls_listen: str | None = None,
        cert: PathLike | None = None,
        key: PathLike | None = None,
        client_ca: PathLike | None = None,
        socket: PathLike | None = None,
        journal: PathLike | None = None,
        pool_bytes: int = 64 << 20,
        size_classes: Iterable[int] | None = None,
        task_timeout: float = 60.0,
        max_attempts: int = 5,
        heartbeat_interval: float | None = None,
        policies: Mapping[str, Policy] | None = None,
        allow_types: Iterable[str] | None = None,
        max_connections: int = 16_384,
        max_connections_per_address: int | None = None,
        idle_timeout: float = 900.0,
        metrics: str | None = None,
        state_dir: PathLike | None = None,
    ) -> None:
        """Restore the tasks in the journal, and start to listen; the class describes the arguments.

        Raises:
            QuicxError: Of kind "io" if an address or a file fails, "misuse" for invalid options, "limit" if the pool is
                too small for the journal; the message names the size needed.
        """
        self._native = _core.QuicxDaemon(
            start_options(
                listen=listen,
                tls_listen=tls_listen,
                cert=cert,
                key=key,
                client_ca=client_ca,
                socket=socket,
                journal=journal,
                pool_bytes=pool_bytes,
                size_classes=size_classes,
                task_timeout=task_timeout,
                max_attempts=max_attempts,
                heartbeat_interval=heartbeat_interval,
                policies=policies,
                allow_types=allow_types,
                max_connections=max_connections,
                max_connections_per_address=max_connections_per_address,
                idle_timeout=idle_timeout,
                metrics=metrics,
                state_folder=state_dir,
            )
        )
        # Kept here because a forked child may want to connect to them.
        self._address = self._native.address()
        self._tls = self._native.tls()

    @property
    def address(self) -> str:
        """The ``HOST:PORT`` on which the daemon listens, with the actual port: without TLS if possible, else with TLS.

        Empty if it listens only on a Unix socket.
        """
        return self._address or (self._tls or ("", ""))[0]

    @property
    def tls_address(self) -> str | None:
        """The ``HOST:PORT`` on which the daemon listens with TLS; None if it does not."""
        return None if self._tls is None else self._tls[0]

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of the daemon's certificate, ``sha256:HEX``; None without TLS."""
        return None if self._tls is None else self._tls[1]

    @property
    def metrics_address(self) -> str | None:
        """The ``HOST:PORT`` on which metrics are served; None if they are not."""
        return self._native.metrics_address()

    @property
    def stats(self) -> Stats:
        """The current numbers of the queue, as for `Producer.stats`."""
        return Stats(*self._native.stats())

    @property
    def counters(self) -> DaemonCounters:
        """The current counters."""
        return DaemonCounters(**self._native.counters())

    def wait_for_stop(self, timeout: float | None = None) -> bool:
        """Wait until a client asks the daemon to stop; return whether one did. Call `close` to stop it.

        Args:
            timeout: Seconds to wait; by default indefinitely.
        """
        return self._native.wait_for_stop(timeout)

    def close(self, drain: float = 30.0) -> int:
        """Accept no more tasks, wait up to ``drain`` seconds for workers to finish those that they hold, and end.

        Returns:
            The number of tasks that are left; the journal keeps them, without one they are lost. 0 if the daemon is
            closed already.
        """
        return self._native.stop(drain)

    def __enter__(self) -> Self:
        """Return the daemon itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the daemon; after an exception, without waiting for workers."""
        self.close() if kind is None else self.close(drain=0)

    def __reduce__(self) -> NoReturn:
        """Not picklable: it is a live socket."""
        raise TypeError("a Daemon is a live socket and cannot be pickled")

    def __repr__(self) -> str:
        """Return the address."""
        return f"<Daemon {self.address}>"
