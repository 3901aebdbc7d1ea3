"""The tasks that a stream holds: received from the daemon, passed to Spark in micro-batches, DONE when committed.

::

    daemon ─▶ taken ─▶ in a micro-batch ─▶ committed: DONE
                │                │
                └────────────────┴── the connection ends: the daemon assigns them again, here or elsewhere
"""

import logging
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from penstock import _core
from penstock._backoff import attempts
from penstock.errors import QuicxError, SparkError
from penstock.quicx import Producer, Task
from penstock.quicx._options import ReachOptions
from penstock.quicx._spool import Spool

__all__ = ["Held", "Taking"]

_LOG = logging.getLogger("penstock.spark")
_HEARTBEAT = 15.0
_ANSWER = 30.0


@dataclass(frozen=True)
class Taking:
    """Options of the worker: the daemon, the types of tasks, and how many are held at once."""

    reach: ReachOptions
    types: tuple[str, ...] = ()
    most: int = 1_000
    retry: int = 60
    spool: str | None = None
    storage: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Held:
    """A worker's connection and its tasks, which are numbered from 0 in the order of their arrival."""

    taking: Taking
    _worker: "_core.QuicxWorker | None" = field(default=None, init=False)
    _tasks: deque[Task] = field(default_factory=deque, init=False)
    _first: int = field(default=0, init=False)
    """The number of the first task that is held."""
    _alive: int = field(default=0, init=False)
    """Tasks before this number arrived on a connection that has ended."""
    _given: int = field(default=0, init=False)
    """Tasks before this number are in a micro-batch."""
    again: int = field(default=0, init=False)
    """How many tasks of micro-batches will arrive again because their connection ended before they were DONE."""

    @property
    def committed(self) -> int:
        """The number before which all tasks are committed."""
        return self._first

    @property
    def end(self) -> int:
        """The number of tasks that have arrived."""
        return self._first + len(self._tasks)

    def take(self, *, settled: bool) -> None:
        """Collect the tasks that have arrived; if ``settled``, first wait for all that the daemon can send now.

        Raises:
            SparkError: The daemon is unreachable and does not come back within ``retry`` seconds.
        """
        problem: QuicxError | None = None
        for _ in attempts(self.taking.retry):
            try:
                worker = self._open()
                if settled:
                    worker.settle(_ANSWER)
                while (found := worker.next_task(0.0)) is not None:
                    self._tasks.append(self._ours(Task(*found)))
            except QuicxError as error:
                problem = error
                self._lost(error)
                if error.kind not in {"io", "deadline"}:
                    break
            else:
                return
        raise SparkError(f"cannot take tasks from {self._where()}: {problem}", "io") from problem

    def _ours(self, task: Task) -> Task:
        """Return the task; raise if its type was not requested, because a daemon without SUBSCRIBE sends any type."""
        if self.taking.types and task.type not in self.taking.types:
            self.close()
            raise SparkError(
                f"{self._where()} sends tasks of type {task.type}, which were not requested: it does not support "
                "SUBSCRIBE, so remove the option types"
            )
        return task

    def waiting(self) -> int:
        """Return how many tasks, of all types, wait at the daemon."""
        reach = self.taking.reach
        try:
            with Producer(
                reach.address,
                socket=reach.socket,
                fingerprint=reach.fingerprint,
                ca=reach.ca,
                system_ca=reach.system_ca,
                cert=reach.cert,
                key=reach.key,
                server_name=reach.server_name,
                plain=reach.plain,
            ) as monitor:
                return monitor.stats(_ANSWER).queue_depth
        except QuicxError as error:
            raise SparkError(f"{self._where()} does not answer: {error}", error.kind) from error

    def plan(self, end: int) -> None:
        """Record that the tasks before a number are in a micro-batch."""
        self._given = max(self._given, end)

    def between(self, start: int, end: int) -> Iterator[Task]:
        """Return the tasks with numbers from ``start`` up to, but not including, ``end``."""
        return islice(self._tasks, max(0, start - self._first), max(0, end - self._first))

    def ahead(self, start: int) -> Iterator[Task]:
        """Return the tasks from a number on."""
        return islice(self._tasks, max(0, start - self._first), None)

    def done(self, end: int) -> None:
        """Report all tasks before a number as DONE, and remove their payloads from the spool."""
        count = min(end, self.end) - self._first
        if count <= 0:
            return
        finished = [self._tasks.popleft() for _ in range(count)]
        ours = finished[max(0, self._alive - self._first) :]
        self._first += count
        try:
            if self._worker is not None and ours:
                self._worker.done_all([task.id for task in ours], _ANSWER)
                # Wait for the daemon, because data written to a broken connection is lost.
                self._worker.settle(_ANSWER)
        except QuicxError as error:
            self.again += len(ours)
            self._lost(error)
            return
        spool = Spool.at(self.taking.spool, storage=self.taking.storage)
        if spool is not None:
            for task in ours:
                try:
                    spool.drop(task.payload)
                except (OSError, QuicxError) as stays:
                    _LOG.warning("the payload of task %d stays in the spool: %s", task.id, stays)

    def close(self) -> None:
        """Close the connection, so that the daemon assigns the held tasks to other workers."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    def _open(self) -> "_core.QuicxWorker":
        if self._worker is None:
            taking = self.taking
            self._worker = _core.QuicxWorker(taking.reach, list(taking.types), taking.most, _HEARTBEAT)
        return self._worker

    def _lost(self, error: QuicxError) -> None:
        """Drop tasks that are in no micro-batch: they arrive again. Those in one arrive again too, as duplicates."""
        _LOG.warning("the connection to %s ended: %s", self._where(), error)
        self.close()
        while self.end > max(self._given, self._first):
            self._tasks.pop()
        self.again += self.end - max(self._first, self._alive)
        self._alive = self.end

    def _where(self) -> str:
        return str(self.taking.reach.socket or self.taking.reach.address)
