"""Daemons: the queue in this process, for tests, notebooks and ``penstock quicx start``."""

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
    """What a daemon has done since it began: `Daemon.counters`."""

    connections: int
    """Connections that came."""
    submitted: int
    """Tasks that were accepted."""
    merged: int
    """Submits for which another task stands (`Policy.unique`)."""
    refused: int
    """Frames that were refused with an ERROR."""
    delivered: int
    """Deliveries to workers."""
    done: int
    """Tasks done."""
    failed: int
    """Tasks failed for good."""
    retried: int
    """Failures that are tried again."""
    lost: int
    """Tasks that came back from workers that are gone."""
    late: int
    """Tasks that came back because their time was over."""
    died: int
    """Tasks that died."""
    dead: int
    """Tasks on the dead list now."""


class Daemon:
    """A queue that takes connections as soon as it is made. As a context manager it stops at the end.

    Args:
        listen: ``HOST:PORT`` in plain text; port 0 picks a free one; None: nowhere. The protocol has no passwords:
            whoever reaches it may submit and take tasks.
        tls_listen: ``HOST:PORT`` with TLS. By default nowhere.
        cert: The certificate (PEM) for that, with ``key``; without, one for localhost is made once and kept.
        key: Its private key (PEM).
        client_ca: A PEM file: clients show a certificate that it has signed.
        socket: The path of a Unix socket, for our own user. By default none.
        journal: A folder: an accepted task is on disk, and comes back after a restart. By default tasks are lost with
            the process.
        pool_bytes: Bytes of the pool: 64 MiB.
        size_classes: Bytes of its blocks, ascending, multiples of 16 up to 1 MiB: 16 to 4,096. A task is its type, its
            payload and one byte, and fits into the largest one.
        task_timeout: Seconds that a worker may hold a task without a heartbeat; 0: for ever.
        max_attempts: Deliveries, before a task is dead.
        heartbeat_interval: Seconds between questions to idle workers; three without an answer end the connection. By
            default they are not asked.
        policies: What is done with the tasks of some types.
        allow_types: The only types that are taken. By default all.
        max_connections: Connections beyond these are closed at once. Where the system has fewer descriptors the daemon
            takes fewer, and says so in the log.
        max_connections_per_address: Connections of one address beyond these are closed at once, an IPv6 address
            standing for its /64; by default seven eighths of ``max_connections``, or 64 where that is more.
        idle_timeout: Seconds of silence after which a connection ends that has neither submitted nor taken anything; 0:
            never. The first byte must come within 10 seconds of the connection, the handshake included.
        metrics: ``HOST:PORT`` of ``/metrics`` for Prometheus and ``/healthz``, over HTTP. By default nowhere.
        state_dir: For development certificates; by default the state folder of the command line.

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
        """Bring back what the journal holds, and begin to listen; the class says what the arguments are.

        Raises:
            QuicxError: Of kind "io" for an address or a file, "misuse" for options that do not fit, "limit" for
                a journal that the pool cannot hold: the message names the size needed.
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
        """``HOST:PORT`` where it listens: in plain text if it does, else with TLS; with the port that was picked.

        Empty where there is a Unix socket only.
        """
        return self._address or (self._tls or ("", ""))[0]

    @property
    def tls_address(self) -> str | None:
        """``HOST:PORT`` where it speaks TLS; None if it does not."""
        return None if self._tls is None else self._tls[0]

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of its certificate, ``sha256:HEX``; None without TLS."""
        return None if self._tls is None else self._tls[1]

    @property
    def metrics_address(self) -> str | None:
        """``HOST:PORT`` where metrics are served; None if they are not."""
        return self._native.metrics_address()

    @property
    def stats(self) -> Stats:
        """What it would answer to STATS."""
        return Stats(*self._native.stats())

    @property
    def counters(self) -> DaemonCounters:
        """What it has done so far."""
        return DaemonCounters(**self._native.counters())

    def wait_for_stop(self, timeout: float | None = None) -> bool:
        """Wait until a client asks it to stop, at most ``timeout`` seconds; say whether one did. It goes on."""
        return self._native.wait_for_stop(timeout)

    def close(self, drain: float = 30.0) -> int:
        """Take no more tasks, give workers ``drain`` seconds to finish what they hold, and end (decision 13).

        Returns:
            How many tasks are left: the journal keeps them; without one they are lost. 0 for a daemon that is closed.
        """
        return self._native.stop(drain)

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close; where an exception came, at once."""
        self.close() if kind is None else self.close(drain=0)

    def __reduce__(self) -> NoReturn:
        """Refuse a pickle."""
        raise TypeError("a Daemon is a live socket and cannot be pickled")

    def __repr__(self) -> str:
        """Say where it listens."""
        return f"<Daemon {self.address}>"
