"""Stop writing a job that its consumer has cancelled: in Spark's tasks, and on the driver that runs their query."""

import signal
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from penstock.errors import PimpError
from penstock.pimp import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Watch", "stop_when_cancelled"]

_ASK_SECONDS = 1.0
_LAST_SECONDS = 10.0
_SIGNAL = signal.SIGUSR1


def _cancelled() -> PimpError:
    return PimpError("the consumer has cancelled the job", "io", "CANCELLED")


class _Asking(ABC):
    """Polls a job once a second, in its own thread, until the job is cancelled, is lost, or ends."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._over = threading.Event()
        self._error: PimpError | None = None
        self._thread = threading.Thread(target=self._ask, name="penstock-pimp-watch", daemon=True)

    def _ask(self) -> None:
        while not self._over.wait(_ASK_SECONDS):
            try:
                status = self._job.status()
                if not status.cancelled:
                    if status.state in {"COMPLETED", "FAILED"}:
                        # A job that has ended cannot be cancelled, and it may expire long before the block ends.
                        return
                    continue
                error = _cancelled()
            except PimpError as lost:
                error = lost
            self._learn(error)
            return

    @abstractmethod
    def _learn(self, error: PimpError) -> None:
        """Handle the error that says why the job is no longer needed."""


class Watch(_Asking):
    """Watches a job while the task that writes it is within the block.

    If the job is cancelled while the task waits for a batch, the wait is interrupted by a `PimpError` with the code
    CANCELLED.
    """

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._waiter = threading.get_ident()
        # Only the main thread can be interrupted, and Spark runs tasks in it; other threads notice at the next batch.
        self._interrupts = threading.current_thread() is threading.main_thread()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        """Check the job for the first time, synchronously, and start the thread."""
        if self._job.status().cancelled:
            raise _cancelled()
        if self._interrupts:
            # The handler stays installed: a late signal finds no watch in the list and does nothing.
            signal.signal(_SIGNAL, _interrupt)
            _watching.append(self)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop polling."""
        with self._lock:
            self._over.set()
        if self._interrupts:
            _watching.remove(self)

    def each(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches; raise if the job was cancelled."""
        for batch in batches:
            self.check()
            yield batch

    def check(self) -> None:
        """Raise the error that the thread has found, if any."""
        if self._error is not None:
            raise self._error

    def _learn(self, error: PimpError) -> None:
        with self._lock:
            if not self._over.is_set():
                self._error = error
                if self._interrupts:
                    signal.pthread_kill(self._waiter, _SIGNAL)


_watching: list[Watch] = []


def _interrupt(_number: int, _frame: object) -> None:
    for watch in _watching:
        watch.check()


@dataclass(frozen=True)
class _Tag:
    """Functions that tag the queries of this thread, so that another thread can interrupt them."""

    add: Callable[[str], None]
    remove: Callable[[str], None]
    interrupt: Callable[[str], object]

    @classmethod
    def of(cls, spark: "SparkSession") -> "_Tag":
        # Compared by name: the module of the Spark Connect session cannot be imported without grpcio.
        if type(spark).__module__.startswith("pyspark.sql.connect."):
            return cls(spark.addTag, spark.removeTag, spark.interruptTag)
        # In a classic session each thread knows only its own tags, so spark.interruptTag misses those of others.
        context = spark.sparkContext
        return cls(context.addJobTag, context.removeJobTag, context.cancelJobsWithTag)


class _Stopping(_Asking):
    """Interrupts the queries of a thread once the job is cancelled or lost."""

    def __init__(self, spark: "SparkSession", job: Job) -> None:
        super().__init__(job)
        self._spark = _Tag.of(spark)
        self._tag = f"penstock-pimp-{uuid.uuid4()}"

    def __enter__(self) -> Self:
        if self._job.status().cancelled:
            raise _cancelled()
        self._spark.add(self._tag)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._spark.remove(self._tag)

    def _learn(self, error: PimpError) -> None:
        self._error = error
        # Repeated, because a query may be about to start, or another one may follow it.
        while not self._over.is_set():
            # Errors are ignored: the thread that waits for the query gets them from Spark itself.
            with suppress(Exception):
                self._spark.interrupt(self._tag)
            self._over.wait(_ASK_SECONDS)

    def why(self) -> PimpError | None:
        """Return the job's error if it is the cause of a failure; tasks may notice a cancellation first."""
        if self._error is None:
            with suppress(PimpError):
                if self._job.status(_LAST_SECONDS).cancelled:
                    return _cancelled()
        return self._error

    def end(self) -> None:
        """Finish the job if its writeKey is known, because the sink may have been stopped before it could."""
        with suppress(PimpError):
            if self._job.key is not None:
                self._job.finish("cancelled by the consumer", _LAST_SECONDS)


@contextmanager
def stop_when_cancelled(spark: "SparkSession", job: Job) -> Iterator[None]:
    """Stop the queries that run within the block, within seconds, once the job's consumer has cancelled the job.

    The tasks that write a job notice a cancellation themselves, but Spark ends a task that waits for rows only after
    many rows have arrived, which takes minutes if a slow Python UDF computes them. This context manager polls the job
    from the driver once a second and interrupts the queries that this thread runs within the block; other queries of
    the session continue.

    Args:
        spark: The session, classic or Spark Connect.
        job: The job, which must exist (`Job.create`, `Job.ensure`), with its writeKey. With only a readKey the queries
            are stopped too, but readers see the end of the job only when the sink ends it.

    Raises:
        PimpError: With the code CANCELLED, in place of the exception that Spark raised. Raised on entering the block if
            the job is already cancelled or its status cannot be read. If the job is lost later (NOT_FOUND, EXPIRED, or
            an unreachable buffer), the queries are stopped as well, and that error is raised.

    >>> from penstock.pimp import Buffer, Job
    >>> from penstock.spark import stop_when_cancelled
    >>> with Buffer(behind_proxy=True) as buffer:
    ...     job = Job.create(buffer.url)
    ...     rows = spark.range(3).coalesce(1)
    ...     with stop_when_cancelled(spark, job):
    ...         rows.write.format("pimp").option("key", job.key).mode("append").save(job.url)
    ...     print(job.consumer().read().decode(), end="")
    {"id":0}
    {"id":1}
    {"id":2}
    """
    with _Stopping(spark, job) as stopping:
        try:
            yield
        except Exception as failed:
            why = stopping.why()
            if why is None:
                raise
            if why.code == "CANCELLED":
                stopping.end()
            raise why from failed
