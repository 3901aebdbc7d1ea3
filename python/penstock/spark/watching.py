"""The progress of running jobs and streaming queries."""

import json
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING, Any, Protocol

from pyspark.errors import PySparkException
from pyspark.sql.streaming.listener import StreamingQueryListener
from rich.console import Console

from penstock._progress import Arrived, SinkMetrics, following, show

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

__all__ = ["Progress", "ProgressListener", "QueryProgress", "progress"]

_REMEMBERED = 1_000
"""How many jobs, and stages, are remembered: as many as Spark's tracker remembers by default."""
_SETTLE_MILLISECONDS = 10_000


@dataclass(frozen=True, slots=True)
class _Tasks:
    """Tasks of the jobs that ran since `progress` was entered."""

    total: int = 0
    """Tasks of all stages that have started."""
    done: int = 0
    """Tasks that have completed."""
    failed: int = 0
    """Attempts that failed; Spark retries them."""


class _Tracker(Protocol):
    def tasks(self) -> _Tasks: ...

    def settle(self) -> None: ...

    def stop(self) -> None: ...


class _Classic:
    """Polls the driver's status tracker for every job that started after this object was created, by job number.

    This also finds jobs that start and end between two polls, because the tracker still knows a stage after its end.
    """

    def __init__(self, context: "SparkContext") -> None:
        scala = context._jsc.sc()
        self._tracker = context.statusTracker()
        self._scheduler = scala.dagScheduler()
        self._events = scala.listenerBus()
        self._next: int = self._scheduler.numTotalJobs()
        # By default the tracker remembers no more jobs than this.
        self._open: deque[int] = deque(maxlen=_REMEMBERED)
        self._seen: dict[int, _Tasks] = {}
        self._past = _Tasks()

    def tasks(self) -> _Tasks:
        with _going_down():
            end: int = self._scheduler.numTotalJobs()
            self._open.extend(range(self._next, end))
            self._next = end
            self._open = deque((job for job in self._open if self._look(job)), _REMEMBERED)
        while len(self._seen) > _REMEMBERED:
            self._past = _sum((self._past, self._seen.pop(next(iter(self._seen)))))
        return _sum((self._past, *self._seen.values()))

    def _look(self, job: int) -> bool:
        """Record the stages of a job; return whether it must be polled again."""
        info = self._tracker.getJobInfo(job)
        if info is None:
            # The job has not reached the tracker yet.
            return True
        for stage in info.stageIds:
            found = self._tracker.getStageInfo(stage)
            # A stage whose output exists from an earlier job is skipped: it never starts.
            if found is not None and found.numActiveTasks + found.numCompletedTasks + found.numFailedTasks > 0:
                self._seen[stage] = _Tasks(found.numTasks, found.numCompletedTasks, found.numFailedTasks)
        return info.status == "RUNNING"

    def settle(self) -> None:
        """Wait until the tracker has processed all events so far, which reach it through a queue."""
        with _going_down():
            self._events.waitUntilEmpty(_SETTLE_MILLISECONDS)

    def stop(self) -> None:
        """Do nothing: there is no handler to remove."""


@contextmanager
def _going_down() -> Iterator[None]:
    """Ignore the errors of a stopping Spark, which the block sees too, and of a queue that is not empty in time."""
    from py4j.protocol import Py4JError

    with suppress(Py4JError, PySparkException, OSError):
        yield


class _Connect:
    """Collects the progress that Spark Connect reports for the stages of each operation of this session.

    The server reports every two seconds (``spark.connect.progress.reportInterval``) and sends no last report with the
    results. It counts failed attempts among the completed tasks.
    """

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._lock = threading.Lock()
        self._seen: dict[tuple[str | None, int], _Tasks] = {}
        spark.registerProgressHandler(self._handle)

    def _handle(self, stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:  # noqa: ARG002 - Spark's
        with self._lock:
            for stage in stages or ():
                if done and stage.num_completed_tasks == 0:
                    # The stage was skipped: its output exists from an earlier job.
                    self._seen.pop((operation_id, stage.stage_id), None)
                else:
                    done_tasks = min(stage.num_completed_tasks, stage.num_tasks)
                    self._seen[operation_id, stage.stage_id] = _Tasks(stage.num_tasks, done_tasks)

    def tasks(self) -> _Tasks:
        with self._lock:
            return _sum(self._seen.values())

    def settle(self) -> None:
        """Do nothing: all reports arrive before the results."""

    def stop(self) -> None:
        self._spark.removeProgressHandler(self._handle)


def _sum(tasks: Iterable[_Tasks]) -> _Tasks:
    total = done = failed = 0
    for each in tasks:
        total, done, failed = total + each.total, done + each.done, failed + each.failed
    return _Tasks(total, done, failed)


def _tracker(spark: "SparkSession") -> _Tracker:
    # Compared by name: the module of the Spark Connect session cannot be imported without grpcio.
    if type(spark).__module__.startswith("pyspark.sql.connect."):
        return _Connect(spark)
    return _Classic(spark.sparkContext)


class Progress:
    """The figures that `progress` has collected so far; safe to read at any time."""

    __slots__ = ("_metrics", "_tasks")

    def __init__(self, metrics: SinkMetrics | None) -> None:
        """Create the figures; use `progress` instead."""
        self._metrics = metrics
        self._tasks = _Tasks()

    @property
    def tasks(self) -> int:
        """The number of tasks of all stages that have started."""
        return self._tasks.total

    @property
    def done(self) -> int:
        """The number of tasks that have completed."""
        return self._tasks.done

    @property
    def failed_attempts(self) -> int:
        """The number of task attempts that failed; always 0 with Spark Connect, which does not report them."""
        return self._tasks.failed

    @property
    def arrived(self) -> Arrived | None:
        """What the sinks have received since the block was entered; None if no metrics were named."""
        return None if self._metrics is None else self._metrics.arrived

    def _update(self, tasks: _Tasks) -> str:
        self._tasks = tasks
        notes = [f"{tasks.failed} attempts failed"] if tasks.failed else []
        if self._metrics is not None:
            self._metrics.update()
            notes.append(str(self._metrics))
        return ", ".join(notes)


@contextmanager
def progress(
    spark: "SparkSession",
    *,
    metrics: str | Iterable[str] = (),
    name: str = "Spark",
    console: Console | None = None,
) -> Iterator[Progress]:
    """Show the progress of the jobs that run within the block: a bar on a terminal, else a line every 5 seconds.

    With Spark Connect the server reports tasks every two seconds (``spark.connect.progress.reportInterval``) and
    nothing between its last report and the results. The last figures may therefore be too low, and those of a quicker
    operation 0.

    Args:
        spark: The session, classic or Spark Connect.
        metrics: ``HOST:PORT`` of the sinks' metrics (``penstock pipestream serve --metrics``), one or several. With
            them, the parts, bytes, failures and rates that have arrived are shown, including all other data that the
            sinks receive meanwhile.
        name: The label in front of the bar.
        console: The console to write to; by default stderr.

    Yields:
        The figures, for callers that display them differently.

    Raises:
        OSError: The metrics do not answer when the block is entered; later failures are ignored.

    Example:
        >>> with progress(spark, metrics="127.0.0.1:9090"):  # doctest: +SKIP
        ...     parts.write.parquet("parts")
    """
    addresses = [metrics] if isinstance(metrics, str) else list(metrics)
    seen = Progress(SinkMetrics(addresses) if addresses else None)
    tracker = _tracker(spark)
    stage = show(Console(stderr=True) if console is None else console, name, None, steps=True)

    def update() -> None:
        tasks = tracker.tasks()
        note = seen._update(tasks)
        stage.advance(tasks.done, note, total=tasks.total or None)

    try:
        with stage, following(update):
            try:
                yield seen
            finally:
                tracker.settle()
    finally:
        tracker.stop()


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """One micro-batch of a streaming query, as reported by `ProgressListener`."""

    query: str
    """The query's ID, which stays the same across restarts."""
    name: str | None
    """The query's name; None if it has none."""
    batch: int
    """The batch's number."""
    time: str
    """When the batch started, in RFC 3339 format, UTC."""
    seconds: float
    """How many seconds the batch took."""
    rows: int
    """The number of rows that it read."""
    rows_per_second: float
    """The number of rows that it processed per second."""
    sources: tuple[str, ...]
    """The sources that it reads, as Spark describes them."""
    sink: str
    """The sink that it writes to, as Spark describes it."""


class ProgressListener(StreamingQueryListener):
    """Reports each micro-batch of a session's streaming queries: to a callable, as JSON lines, or as a bar.

    >>> batches = []
    >>> listener = ProgressListener(batches.append)
    >>> spark.streams.addListener(listener)  # doctest: +SKIP
    >>> query.awaitTermination()  # doctest: +SKIP
    >>> listener.wait()
    True
    >>> spark.streams.removeListener(listener)  # doctest: +SKIP
    """

    def __init__(
        self,
        each: Callable[[QueryProgress], None] | None = None,
        *,
        json_lines: IO[str] | None = None,
        console: Console | None = None,
    ) -> None:
        """Choose where batches are reported; by default as a bar for each query on stderr, if that is a terminal.

        Args:
            each: Called for each batch, in one of Spark's threads. Spark logs the exceptions that it raises.
            json_lines: A text file to which a line is written for each batch, with the fields of `QueryProgress`.
            console: A console that shows a line for each query, updated with its batches, rows and rate.
        """
        super().__init__()
        if each is None and json_lines is None and console is None and sys.stderr.isatty():
            console = Console(stderr=True)
        self._each = each
        self._json_lines = json_lines
        self._console = console
        self._lock = threading.Lock()
        self._ended = threading.Condition(self._lock)
        self._running: set[str] = set()
        self._bars: dict[str, _QueryBar] = {}

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the end of every query reported so far has been reported, so that no more events arrive.

        ``query.awaitTermination()`` may return earlier. With Spark Connect ``removeListener`` must not be called while
        events arrive: the client of PySpark 4.3 and earlier may then wait indefinitely (SPARK-59623).

        Args:
            timeout: Seconds to wait; by default indefinitely.

        Returns:
            Whether all queries have ended.
        """
        with self._ended:
            return self._ended.wait_for(lambda: not self._running, timeout)

    def onQueryStarted(self, event: "QueryStartedEvent") -> None:  # noqa: N802 - Spark's name
        """Start a bar for the query."""
        with self._lock:
            self._running.add(str(event.runId))
            if self._console is not None:
                self._bars[str(event.runId)] = _QueryBar(self._console, event.name or str(event.id))

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:  # noqa: N802
        """Report a batch."""
        batch = event.progress
        found = QueryProgress(
            query=str(batch.id),
            name=batch.name,
            batch=batch.batchId,
            time=batch.timestamp,
            seconds=batch.batchDuration / 1000,
            rows=batch.numInputRows,
            rows_per_second=_finite(batch.processedRowsPerSecond),
            sources=tuple(source.description for source in batch.sources),
            sink=batch.sink.description,
        )
        with self._lock:
            # The query may have started before the listener was added.
            self._running.add(str(batch.runId))
            if self._json_lines is not None:
                self._json_lines.write(json.dumps(asdict(found)) + "\n")
                self._json_lines.flush()
            bar = self._bars.get(str(batch.runId))
            if bar is not None:
                bar.advance(found)
        if self._each is not None:
            self._each(found)

    def onQueryIdle(self, event: "QueryIdleEvent") -> None:  # noqa: N802
        """Do nothing: an idle query has no batch to report."""

    def onQueryTerminated(self, event: "QueryTerminatedEvent") -> None:  # noqa: N802
        """End the bar of the query."""
        with self._ended:
            bar = self._bars.pop(str(event.runId), None)
            if bar is not None:
                bar.end()
            self._running.discard(str(event.runId))
            self._ended.notify_all()


def _finite(rate: float) -> float:
    # For a batch that took no time Spark reports NaN or infinity, which JSON cannot represent.
    return rate if 0 <= rate < float("inf") else 0.0


class _QueryBar:
    def __init__(self, console: Console, name: str) -> None:
        self._stage = show(console, name, None)
        self._rows = 0
        self._stage.__enter__()

    def advance(self, batch: QueryProgress) -> None:
        self._rows += batch.rows
        note = f"batch {batch.batch}, {self._rows:,} rows, {batch.rows_per_second:,.0f}/s"
        self._stage.advance(batch.batch + 1, note)

    def end(self) -> None:
        self._stage.__exit__(None, None, None)
