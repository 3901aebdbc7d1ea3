"""Workers that stay between connections."""

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
    """What a pool has done, and what it has."""

    borrows: int
    """Connections that were asked for."""
    spawns: int
    """Workers that were started for them."""
    reuses: int
    """Workers that were there already."""
    returns: int
    """Workers that came back."""
    discards: int
    """Workers that did not: they had ended, or their connection was not usable any more."""
    evictions_idle: int
    """Workers that were ended because nobody had asked for them in time."""
    evictions_max: int
    """Workers that were ended because too many were idle."""
    idle: int
    """Workers that wait now."""
    active: int
    """Workers that are lent now."""


class _Idle:
    def __init__(self, key: tuple[str, ...], transport: SubprocessTransport) -> None:
        self.key, self.transport, self.since = key, transport, time.monotonic()


class WorkerPool:
    """Starts workers when they are asked for, and keeps them for the next who asks for the same command.

    Its workers belong to the process that started them: in a fork the pool is empty.

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
        """Keep so many idle workers, for so many seconds.

        With ``shm_size`` each connection has a segment of so many bytes of shared memory beside its pipe.
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
        """Have no workers of the process that this one was forked from."""
        if self._pid != os.getpid():
            for idle in self._idle:
                # Our copies of the pipes; the workers are the other process's.
                for file in (idle.transport.reader, idle.transport.writer):
                    file.close()
            self._changed = threading.Condition()
            self._forget()

    def __enter__(self) -> Self:
        """Give this pool."""
        return self

    def __exit__(self, *args: object) -> None:
        """Close it."""
        self.close()

    @property
    def active_count(self) -> int:
        """Workers that are lent now."""
        return self.metrics.active

    @property
    def idle_count(self) -> int:
        """Workers that wait now."""
        return self.metrics.idle

    @property
    def metrics(self) -> PoolMetrics:
        """What it has done, and what it has."""
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
        """Give a proxy of a worker that runs ``cmd``, and take the worker back at the end of the block.

        A worker that has ended, or whose connection broke, does not come back.
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
            # The one that was used last is the warmest.
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
        """End workers that waited too long; the thread ends with the last of them."""
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
        """End the idle workers; those that are lent end when they come back."""
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
