"""Who writes a job learns that nobody wants it any more: the tasks of Spark, and the driver whose query runs them."""

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
    """Asks once a second, in a thread of its own, whether anybody still wants a job, until nobody does or it ends."""

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
                        # What has ended is cancelled by nobody, and may be gone long before the block ends.
                        return
                    continue
                error = _cancelled()
            except PimpError as lost:
                error = lost
            self._learn(error)
            return

    @abstractmethod
    def _learn(self, error: PimpError) -> None:
        """Nobody wants the job any more, and why."""


class Watch(_Asking):
    """Watches a job while the task that writes it is within the block.

    A batch may be long in coming: then what waits for it is interrupted, by a `PimpError` with the code CANCELLED.
    """

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._waiter = threading.get_ident()
        # Only the main thread, which tasks of Spark run in, can be interrupted; another learns it with its next batch.
        self._interrupts = threading.current_thread() is threading.main_thread()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        """Ask for the first time, here and now."""
        if self._job.status().cancelled:
            raise _cancelled()
        if self._interrupts:
            # It stays: a signal that comes late finds nobody who watches, and does nothing.
            signal.signal(_SIGNAL, _interrupt)
            _watching.append(self)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Ask no more."""
        with self._lock:
            self._over.set()
        if self._interrupts:
            _watching.remove(self)

    def each(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass batches on."""
        for batch in batches:
            self.check()
            yield batch

    def check(self) -> None:
        """Raise what was learnt."""
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
    """A tag of what this thread has Spark run, by which another thread can interrupt it."""

    add: Callable[[str], None]
    remove: Callable[[str], None]
    interrupt: Callable[[str], object]

    @classmethod
    def of(cls, spark: "SparkSession") -> "_Tag":
        # A session of Spark Connect is of another class, whose module cannot be imported without grpcio.
        if type(spark).__module__.startswith("pyspark.sql.connect."):
            return cls(spark.addTag, spark.removeTag, spark.interruptTag)
        # Each thread of a classic session knows its own tags only, so there spark.interruptTag finds none of another.
        context = spark.sparkContext
        return cls(context.addJobTag, context.removeJobTag, context.cancelJobsWithTag)


class _Stopping(_Asking):
    """Interrupts what Spark runs for a thread, once nobody wants the job."""

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
        # Again and again: a query may be about to begin, or another one come behind it.
        while not self._over.is_set():
            # Whoever waits for the query is told by Spark itself that its driver cannot be reached.
            with suppress(Exception):
                self._spark.interrupt(self._tag)
            self._over.wait(_ASK_SECONDS)

    def why(self) -> PimpError | None:
        """Say why something failed, if it is that nobody wants the job: tasks may learn it before this thread does."""
        if self._error is None:
            with suppress(PimpError):
                if self._job.status(_LAST_SECONDS).cancelled:
                    return _cancelled()
        return self._error

    def end(self) -> None:
        """End the job, where that is ours to do: the sink that was stopped may not have come to it."""
        with suppress(PimpError):
            if self._job.key is not None:
                self._job.finish("cancelled by the consumer", _LAST_SECONDS)


@contextmanager
def stop_when_cancelled(spark: "SparkSession", job: Job) -> Iterator[None]:
    """Have Spark stop the queries that the block runs, within seconds, once the job's consumer has cancelled it.

    The tasks that write a job learn that by themselves, but Spark ends one that waits for rows when many have come:
    behind a slow UDF in Python that takes minutes. This asks from the driver, once a second, and interrupts what this
    thread runs within the block; other queries of the session go on.

    Args:
        spark: The session, classic or of Spark Connect.
        job: The job, which must be there (`Job.create`, `Job.ensure`), with its writeKey; with a readKey alone the
            queries are stopped too, and readers hear of the end as late as the sink comes to say it.

    Raises:
        PimpError: With the code CANCELLED, in the place of what Spark raised; when the block is entered, if the job is
            cancelled already or cannot be asked for. Where the job is lost meanwhile (NOT_FOUND, EXPIRED, a buffer
            that cannot be reached) the queries are stopped as well, and it is that error.

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
