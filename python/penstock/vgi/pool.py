"""A pool of worker processes that are reused between connections."""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeVar

from penstock.vgi.rpc._client import OnLog, RpcConnection
from penstock.vgi.rpc._transport import RpcTransport, ShmPipeTransport, StderrMode, SubprocessTransport
from penstock.vgi.shm import SharedMemorySegment
from penstock.vgi.utils import IpcValidation

if TYPE_CHECKING:
    from penstock.vgi._external import ExternalConfig

__all__ = ["PoolMetrics", "WorkerPool"]

P = TypeVar("P")

_log = logging.getLogger("vgi_rpc.pool")


@dataclass(frozen=True)
class PoolMetrics:
    """The counters of a pool, and its current numbers of workers."""

    borrows: int
    """Requested connections."""
    spawns: int
    """Connections for which a worker was started."""
    reuses: int
    """Connections that received an idle worker."""
    returns: int
    """Workers that returned to the pool after a connection."""
    discards: int
    """Workers that were dropped because they had exited, their connection had failed, or the pool was closed."""
    evictions_idle: int
    """Workers that were ended because they were idle for too long."""
    evictions_max: int
    """Workers that were ended because too many were idle."""
    idle: int
    """Workers that are idle now."""
    active: int
    """Workers that are in use now."""


class _Idle:
    def __init__(self, key: tuple[str, ...], transport: SubprocessTransport) -> None:
        self.key, self.transport, self.since = key, transport, time.monotonic()


class WorkerPool:
    """A pool that starts workers on demand, and keeps them for later connections to the same command.

    Workers belong to the process that started them: in a forked process the pool is empty.

    ```python
    >>> from penstock.vgi import WorkerPool
    >>> with WorkerPool(max_idle=2, idle_timeout=30.0) as pool:
    ...     pool.metrics.spawns
    0

    ```
    """

    def __init__(
        self,
        max_idle: int = 4,
        idle_timeout: float = 60.0,
        stderr: StderrMode = StderrMode.INHERIT,
        stderr_logger: logging.Logger | None = None,
        shm_size: int | None = None,
    ) -> None:
        """Create an empty pool.

        Args:
            max_idle: The most idle workers to keep.
            idle_timeout: Seconds after which an idle worker is ended.
            stderr: Where the workers' standard error goes; by default where this process's goes.
            stderr_logger: The logger for StderrMode.PIPE, by default ``vgi_rpc.subprocess.stderr``.
            shm_size: The size in bytes of the shared memory segment alongside each connection; by default there is
                none.

        Raises:
            ValueError: If ``max_idle`` or ``idle_timeout`` is negative.
        """
        if max_idle < 0 or idle_timeout < 0:
            raise ValueError("max_idle and idle_timeout cannot be negative")
        self._max_idle, self._timeout = max_idle, idle_timeout
        self._stderr, self._logger, self._shm_size = stderr, stderr_logger, shm_size
        self._changed = threading.Condition()
        self._closed = False
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._idle: list[_Idle] = []
        self._reaper: threading.Thread | None = None
        self._active = 0
        self._counts = dict.fromkeys(
            ("borrows", "spawns", "reuses", "returns", "discards", "evictions_idle", "evictions_max"), 0
        )

    def _own(self) -> None:
        """After a fork, forget the workers of the parent process."""
        if self._pid != os.getpid():
            for idle in self._idle:
                # Close the copied descriptors only, because the workers belong to the parent process.
                for file in (idle.transport.reader, idle.transport.writer):
                    file.close()
            self._changed = threading.Condition()
            self._forget()

    def __enter__(self) -> Self:
        """Return this pool."""
        return self

    def __exit__(self, *args: object) -> None:
        """Close the pool."""
        self.close()

    @property
    def active_count(self) -> int:
        """The number of workers in use now."""
        return self.metrics.active

    @property
    def idle_count(self) -> int:
        """The number of idle workers now."""
        return self.metrics.idle

    @property
    def metrics(self) -> PoolMetrics:
        """The counters of the pool, and its current numbers of workers."""
        self._own()
        with self._changed:
            return PoolMetrics(**self._counts, idle=len(self._idle), active=self._active)

    @contextlib.contextmanager
    def connect(
        self,
        protocol: type[P],
        cmd: list[str],
        *,
        on_log: OnLog | None = None,
        external_location: "ExternalConfig | None" = None,
        ipc_validation: IpcValidation = IpcValidation.FULL,
    ) -> Iterator[P]:
        """Yield a proxy of a worker that runs ``cmd``; the worker returns to the pool at the end of the block.

        A worker that has exited, or whose connection failed, is dropped instead.

        Args:
            protocol: The service, a ``typing.Protocol``.
            cmd: The command of the worker, which serves on its standard input and output.
            on_log: Called with each log message of the worker; by default they are dropped.
            external_location: How to fetch batches that the worker put into an object store.
            ipc_validation: How thoroughly to check the batches of streams.

        Yields:
            A proxy with the service's methods, which accept keyword arguments only.

        Raises:
            RuntimeError: If the pool is closed.
        """
        worker = self._borrow(tuple(cmd))
        usable = False
        try:
            with _with_segment(worker, self._shm_size) as transport:
                connection = RpcConnection(
                    protocol, transport, on_log, external_location=external_location, ipc_validation=ipc_validation
                )
                try:
                    with connection as proxy:
                        yield proxy
                finally:
                    usable = connection.usable and worker.proc.poll() is None
        finally:
            self._give_back(tuple(cmd), worker, usable)

    def _borrow(self, key: tuple[str, ...]) -> SubprocessTransport:
        self._own()
        gone = []
        found: SubprocessTransport | None = None
        with self._changed:
            if self._closed:
                raise RuntimeError("the pool is closed")
            self._counts["borrows"] += 1
            # Prefer the most recently used worker, whose caches are warm.
            for idle in [each for each in reversed(self._idle) if each.key == key]:
                self._idle.remove(idle)
                if idle.transport.proc.poll() is None:
                    found = idle.transport
                    break
                gone.append(idle.transport)
            self._counts["discards"] += len(gone)
            self._counts["spawns" if found is None else "reuses"] += 1
            self._active += 1
        for each in gone:
            each.close()
        if found is not None:
            return found
        try:
            return SubprocessTransport(list(key), stderr=self._stderr, stderr_logger=self._logger)
        except BaseException:
            with self._changed:
                self._active -= 1
            raise

    def _give_back(self, key: tuple[str, ...], worker: SubprocessTransport, usable: bool) -> None:
        over: list[SubprocessTransport] = []
        with self._changed:
            self._active -= 1
            if not usable or self._closed:
                self._counts["discards"] += 1
                over.append(worker)
            else:
                self._counts["returns"] += 1
                self._idle.append(_Idle(key, worker))
                while len(self._idle) > self._max_idle:
                    over.append(self._idle.pop(0).transport)
                    self._counts["evictions_max"] += 1
                self._start_reaper()
                self._changed.notify()
        for each in over:
            _log.debug("a worker leaves the pool: %s", key)
            each.close()

    def _start_reaper(self) -> None:
        if self._reaper is None or not self._reaper.is_alive():
            self._reaper = threading.Thread(target=self._reap, name="vgi-pool", daemon=True)
            self._reaper.start()

    def _reap(self) -> None:
        """End workers that were idle for too long, until none is left."""
        while True:
            with self._changed:
                now = time.monotonic()
                late = [idle for idle in self._idle if now - idle.since >= self._timeout]
                self._idle = [idle for idle in self._idle if idle not in late]
                self._counts["evictions_idle"] += len(late)
                if not late:
                    if not self._idle:
                        self._reaper = None
                        return
                    self._changed.wait(min(idle.since for idle in self._idle) + self._timeout - now)
            for idle in late:
                idle.transport.close()

    def close(self) -> None:
        """End the idle workers; those in use end when their connections do."""
        self._own()
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            self._changed.notify()
        for each in idle:
            each.transport.close()


@contextlib.contextmanager
def _with_segment(worker: SubprocessTransport, size: int | None) -> Iterator[RpcTransport]:
    if size is None:
        yield worker
        return
    segment = SharedMemorySegment.create(size)
    try:
        yield ShmPipeTransport(worker, segment)
    finally:
        segment.unlink()
        segment.close()
