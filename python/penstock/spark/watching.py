"""How far a running job, or a streaming query, is."""

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
"""Jobs and stages; what Spark's tracker remembers by default."""
_SETTLE_MILLISECONDS = 10_000


@dataclass(frozen=True, slots=True)
class _Tasks:
    """Tasks of the jobs that ran since `progress` was entered."""

    total: int = 0
    """Of all stages that have begun."""
    done: int = 0
    """That came to their ends."""
    failed: int = 0
    """Attempts that failed; Spark tries again."""


class _Tracker(Protocol):
    def tasks(self) -> _Tasks: ...

    def settle(self) -> None: ...

    def stop(self) -> None: ...


class _Classic:
    """Asks the driver's status tracker about every job since it was made, by its number.

    So those are seen, too, that begin and end between two looks. A stage stays known to the tracker after its end.
    """

    def __init__(self, context: "SparkContext") -> None:
        scala = context._jsc.sc()
        self._tracker = context.statusTracker()
        self._scheduler = scala.dagScheduler()
        self._events = scala.listenerBus()
        self._next: int = self._scheduler.numTotalJobs()
        # The tracker itself remembers no more by default.
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
        """Look at the stages of a job; say whether to look again."""
        info = self._tracker.getJobInfo(job)
        if info is None:
            # The tracker has not heard of it yet.
            return True
        for stage in info.stageIds:
            found = self._tracker.getStageInfo(stage)
            # A stage whose output is there from an earlier job is skipped: it never begins.
            if found is not None and found.numActiveTasks + found.numCompletedTasks + found.numFailedTasks > 0:
                self._seen[stage] = _Tasks(found.numTasks, found.numCompletedTasks, found.numFailedTasks)
        return info.status == "RUNNING"

    def settle(self) -> None:
        """Wait until the tracker has heard of all that has happened: it is told through a queue."""
        with _going_down():
            self._events.waitUntilEmpty(_SETTLE_MILLISECONDS)

    def stop(self) -> None:
        """There is nothing to take back."""


@contextmanager
def _going_down() -> Iterator[None]:
    """Pass over what Spark says while it stops, which the block learns itself, and that its queue was too long."""
    from py4j.protocol import Py4JError

    with suppress(Py4JError, PySparkException, OSError):
        yield


class _Connect:
    """Is told by Spark Connect of the stages of each operation of this session.

    The server tells of an operation every two seconds (``spark.connect.progress.reportInterval``), and what it has to
    tell when the results are there it leaves out. Attempts that failed are among the tasks that it calls completed.
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
                    # It was skipped: its output is there from an earlier job.
                    self._seen.pop((operation_id, stage.stage_id), None)
                else:
                    done_tasks = min(stage.num_completed_tasks, stage.num_tasks)
                    self._seen[operation_id, stage.stage_id] = _Tasks(stage.num_tasks, done_tasks)

    def tasks(self) -> _Tasks:
        with self._lock:
            return _sum(self._seen.values())

    def settle(self) -> None:
        """All that it is told comes before the results."""

    def stop(self) -> None:
        self._spark.removeProgressHandler(self._handle)


def _sum(tasks: Iterable[_Tasks]) -> _Tasks:
    total = done = failed = 0
    for each in tasks:
        total, done, failed = total + each.total, done + each.done, failed + each.failed
    return _Tasks(total, done, failed)


def _tracker(spark: "SparkSession") -> _Tracker:
    # A session of Spark Connect is of another class, whose module cannot be imported without grpcio.
    if type(spark).__module__.startswith("pyspark.sql.connect."):
        return _Connect(spark)
    return _Classic(spark.sparkContext)


class Progress:
    """What `progress` has seen so far; safe to read at any time."""

    __slots__ = ("_metrics", "_tasks")

    def __init__(self, metrics: SinkMetrics | None) -> None:
        """Use `progress`."""
        self._metrics = metrics
        self._tasks = _Tasks()

    @property
    def tasks(self) -> int:
        """Tasks of the stages that have begun."""
        return self._tasks.total

    @property
    def done(self) -> int:
        """Tasks that came to their ends."""
        return self._tasks.done

    @property
    def failed_attempts(self) -> int:
        """Attempts of tasks that failed; Spark Connect does not say, so 0 there."""
        return self._tasks.failed

    @property
    def arrived(self) -> Arrived | None:
        """What the sinks have received since the block was entered; None where their metrics are not known."""
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
    """Show how far the jobs are that run while the block does: a bar on a terminal, elsewhere a line every 5 seconds.

    With Spark Connect the server tells of tasks every two seconds (``spark.connect.progress.reportInterval``) and of
    nothing between its last report and the results, so the last figures may be short, and 0 of what is quicker.

    Args:
        spark: The session, classic or of Spark Connect.
        metrics: ``HOST:PORT`` of the sinks' metrics (``penstock pipestream serve --metrics``), one or several. With
            them, parts, bytes, failures and rates are shown as they have arrived. Whatever else the sinks receive
            meanwhile is among them.
        name: What stands before the bar.
        console: Where it is shown; by default stderr.

    Yields:
        The figures, for whoever shows them otherwise.

    Raises:
        OSError: Where metrics do not answer when the block is entered; later failures are passed over.

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
    """One micro-batch of a streaming query, as `ProgressListener` gives it."""

    query: str
    """The query's ID, which it keeps over restarts."""
    name: str | None
    """Its name, if it has one."""
    batch: int
    """The batch's number."""
    time: str
    """When the batch began, RFC 3339 in UTC."""
    seconds: float
    """How long it took."""
    rows: int
    """Rows that it read."""
    rows_per_second: float
    """Rows that it processed in a second."""
    sources: tuple[str, ...]
    """What it reads from, in Spark's words."""
    sink: str
    """What it writes to, in Spark's words."""


class ProgressListener(StreamingQueryListener):
    """Tells of each micro-batch of a session's streaming queries: to a callable, as JSON lines, as a bar.

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
        """Say where it goes; with nothing named, to a bar for each query on stderr, if that is a terminal.

        Args:
            each: Is called for each batch, in a thread of Spark's. What it raises is Spark's to log.
            json_lines: A text file that gets a line for each batch, with the fields of `QueryProgress`.
            console: Where a line for each query is kept up to date, with batches, rows and rate.
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
        """Wait until the end has been told of every query of which anything was told, so that nothing more comes.

        ``query.awaitTermination()`` may return earlier, and with Spark Connect ``removeListener`` must not be called
        while something comes: the client of PySpark 4.3 and earlier may then wait for ever (SPARK-59623).

        Args:
            timeout: For how many seconds; by default for ever.

        Returns:
            Whether they have all ended.
        """
        with self._ended:
            return self._ended.wait_for(lambda: not self._running, timeout)

    def onQueryStarted(self, event: "QueryStartedEvent") -> None:  # noqa: N802 - Spark's name
        """Begin a bar."""
        with self._lock:
            self._running.add(str(event.runId))
            if self._console is not None:
                self._bars[str(event.runId)] = _QueryBar(self._console, event.name or str(event.id))

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:  # noqa: N802
        """Tell of a batch."""
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
            # It may have begun before anybody listened.
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
        """Nothing has come: there is nothing to tell."""

    def onQueryTerminated(self, event: "QueryTerminatedEvent") -> None:  # noqa: N802
        """End a bar."""
        with self._ended:
            bar = self._bars.pop(str(event.runId), None)
            if bar is not None:
                bar.end()
            self._running.discard(str(event.runId))
            self._ended.notify_all()


def _finite(rate: float) -> float:
    # Of a batch that took no time Spark says NaN or infinity, which JSON has no word for.
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
