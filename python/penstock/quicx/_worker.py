"""Workers, which run tasks with functions, in threads or processes."""

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context
from threading import Event, Thread
from types import TracebackType
from typing import NoReturn, Self, TypeVar

from penstock import _core
from penstock._backoff import pauses
from penstock.errors import Error, QuicxError
from penstock.quicx._options import DEFAULT_ADDRESS, PathLike, ReachOptions
from penstock.quicx._spool import Spool, content_of

__all__ = ["Task", "TaskFailed", "Worker", "check_not_stopped", "function_for", "reason_of"]

_log = logging.getLogger(__name__)

_Function = Callable[[bytes], object]
_F = TypeVar("_F", bound=_Function)
_Any = TypeVar("_Any")

# Seconds between the loop's checks whether the worker was stopped.
_LOOK = 0.1


@dataclass(frozen=True, slots=True)
class Task:
    """A task that was delivered to a worker."""

    id: int
    """The task's ID."""
    type: str
    """The task's type."""
    payload: bytes
    """The payload, or a reference to it in a spool."""


class TaskFailed(Error):
    """An exception that a function raises to fail its task; its text is the reason, unchanged.

    >>> str(TaskFailed("no such address"))
    'no such address'
    """

    def __init__(self, reason: str = "") -> None:
        """Make an error with the reason of the failure."""
        super().__init__(reason, "application")
        self.args = (reason,)


class Worker:
    """A worker, which receives tasks from a daemon and runs a function for each.

    A task is DONE when its function returns, and FAILED with the reason when it raises. Delivery is at least once: if a
    worker dies or loses its connection, its tasks are delivered to others. While functions run, the worker sends
    heartbeats, so that the daemon does not deliver their tasks again.

    It works with any daemon of the protocol. A daemon without PREFETCH delivers one task at a time, whatever
    ``threads`` is. A daemon without SUBSCRIBE delivers tasks of any type; those without a function fail.

    Args:
        address: ``HOST:PORT`` of the daemon. The arguments up to ``timeout`` are those of `Producer`.
        threads: The number of functions that run at once, in threads.
        processes: The number of processes that run functions, instead of threads. Functions must be importable then.
        heartbeat: Seconds between heartbeats, whether idle or not; must be less than the daemon's ``task_timeout``.
            Three without an answer end the connection.
        spool: The folder, or the URI, of the producer's ``spool``.
        storage: Options of the object store, as for `Producer`.
        retry: Whether to connect again, for as long as necessary, if the connection is lost.

    >>> from penstock.quicx import Daemon, Producer
    >>> with Daemon() as daemon, Producer(daemon.address) as producer:
    ...     worker = Worker(daemon.address)
    ...
    ...     @worker.task("greet")
    ...     def greet(payload):
    ...         print("hello", payload.decode())
    ...
    ...     with worker:
    ...         worker.start()
    ...         producer.observe(producer.submit("greet", b"world")).ok
    hello world
    True
    """

    __slots__ = (
        "_failed",
        "_functions",
        "_heartbeat",
        "_options",
        "_processes",
        "_retry",
        "_running",
        "_spool",
        "_stop",
        "_thread",
        "_threads",
    )

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        socket: PathLike | None = None,
        fingerprint: str | None = None,
        ca: PathLike | None = None,
        system_ca: bool = False,
        cert: PathLike | None = None,
        key: PathLike | None = None,
        server_name: str | None = None,
        plain: bool = False,
        timeout: float = 10.0,
        threads: int = 1,
        processes: int = 0,
        heartbeat: float = 15.0,
        spool: PathLike | None = None,
        storage: Mapping[str, str] | None = None,
        retry: bool = True,
    ) -> None:
        """Make a worker, which is not connected yet; the class describes the arguments.

        Raises:
            QuicxError: Of kind "misuse" for invalid options.
        """
        self._options = ReachOptions(
            address=address,
            socket=socket,
            fingerprint=fingerprint,
            ca=ca,
            system_ca=system_ca,
            cert=cert,
            key=key,
            server_name=server_name,
            plain=plain,
            timeout=timeout,
        ).check()
        if threads < 1 or processes < 0:
            raise QuicxError("a worker requires threads >= 1 and processes >= 0", "misuse")
        if processes and threads > 1:
            raise QuicxError(f"threads={threads} and processes={processes} are mutually exclusive", "misuse")
        self._threads = threads
        self._processes = processes
        self._heartbeat = heartbeat
        self._spool = Spool.at(spool, storage=storage)
        self._retry = retry
        self._functions: dict[str, _Function] = {}
        self._stop = Event()
        self._thread: Thread | None = None
        self._failed: Exception | None = None
        self._running: dict[Future[object], Task] = {}

    def task(self, type: str) -> Callable[[_F], _F]:  # noqa: A002
        """Register the decorated function, unchanged, for the tasks of a type; it is called with the payload."""

        def register(function: _F) -> _F:
            self._functions[type] = function
            return function

        return register

    def start(self) -> None:
        """Connect, and run tasks in the background until `close`.

        Raises:
            QuicxError: If the daemon cannot be reached, no function is registered, or the worker runs or was stopped.
        """
        if self._thread is not None:
            raise QuicxError("the worker is already running", "misuse")
        check_not_stopped(self._stop.is_set())
        native = self._connect()
        self._thread = Thread(target=self._run_kept, args=(native,), name="penstock-worker", daemon=True)
        self._thread.start()

    def run(self) -> None:
        """Run tasks until `stop` is called, for example by a signal handler; then finish those that are running.

        Raises:
            QuicxError: If the daemon cannot be reached at the start, or, without ``retry``, the connection is lost. Of
                kind "misuse" if the worker was stopped before.
        """
        check_not_stopped(self._stop.is_set())
        self._run(self._connect())

    def stop(self) -> None:
        """Accept no more tasks, and let `run` return when the running ones are finished; do not wait for that.

        A worker that was stopped or closed cannot be started again: make another one.
        """
        self._stop.set()

    def close(self) -> None:
        """Accept no more tasks, and wait until the running ones are finished.

        Raises:
            QuicxError: If, without ``retry``, the connection was lost since `start`.
        """
        self.stop()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            if self._failed is not None:
                raise self._failed

    def _connect(self) -> "_core.QuicxWorker":
        if not self._functions:
            raise QuicxError("no function is registered: decorate one with worker.task(TYPE)", "misuse")
        prefetch = self._processes or self._threads
        return _core.QuicxWorker(self._options, list(self._functions), prefetch, self._heartbeat)

    def _run_kept(self, native: "_core.QuicxWorker") -> None:
        try:
            self._run(native)
        except Exception as error:  # noqa: BLE001 - close raises it
            self._failed = error

    def _run(self, native: "_core.QuicxWorker") -> None:
        while True:
            executor = self._executor()
            try:
                self._serve(native, executor)
                return
            except QuicxError as error:
                if not self._retry or error.kind == "misuse":
                    raise
                _log.warning("the worker's connection ended: %s", error)
            except BrokenExecutor as error:
                # The connection ends too: running tasks are delivered to others, and are dead after some attempts.
                _log.error("a process of the worker died: %s", error)
            finally:
                native.close()
                executor.shutdown(wait=True, cancel_futures=True)
                self._running.clear()
            again = self._reconnect()
            if again is None:
                return
            native = again

    def _executor(self) -> Executor:
        if self._processes:
            # Spawned, because a fork would copy locks that other threads hold.
            return ProcessPoolExecutor(self._processes, mp_context=get_context("spawn"))
        return ThreadPoolExecutor(self._threads, thread_name_prefix="penstock-task")

    def _reconnect(self) -> "_core.QuicxWorker | None":
        """Connect again, retrying until that succeeds; return None if the worker is stopped."""
        for pause in pauses():
            if self._stop.wait(pause):
                break
            try:
                return self._connect()
            except QuicxError as error:
                _log.info("the daemon cannot be reached: %s", error)
        return None

    def _serve(self, native: "_core.QuicxWorker", executor: Executor) -> None:
        """Run the tasks of one connection."""
        resting = False
        while not (resting and not self._running):
            if self._stop.is_set() and not resting:
                native.rest(self._options.timeout)
                resting = True
            # After `rest`, every task that was delivered before is available without waiting.
            found = native.next_task(0.0 if resting else _LOOK)
            if found is not None:
                self._begin(native, executor, Task(*found))
            else:
                self._settle(native, _LOOK if resting else 0.0)

    def _begin(self, native: "_core.QuicxWorker", executor: Executor, task: Task) -> None:
        self._settle(native, 0.0)
        try:
            function = function_for(self._functions, task.type)
            payload = content_of(self._spool, task.payload)
        except (QuicxError, TaskFailed) as error:
            native.failed(task.id, reason_of(error), None)
            return
        future: Future[object] = executor.submit(_call, function, payload)
        self._running[future] = task
        if not self._processes:
            # Reported from the function's own thread, so that the report does not wait for the loop.
            future.add_done_callback(lambda future: self._report(native, future))

    def _settle(self, native: "_core.QuicxWorker", seconds: float) -> None:
        """Wait up to this many seconds until a task is finished; report the tasks that processes have finished."""
        futures = list(self._running)
        if futures and seconds:
            wait(futures, seconds, return_when="FIRST_COMPLETED")
        if self._processes:
            for future in filter(Future.done, futures):
                self._report(native, future)

    def _report(self, native: "_core.QuicxWorker", future: Future[object]) -> None:
        """Report the outcome of a task to the daemon; the connection stays open until that is done."""
        task = self._running.get(future)
        if task is None or future.cancelled():
            return
        try:
            self._tell(native, task, future.exception())
        finally:
            self._running.pop(future, None)

    def _tell(self, native: "_core.QuicxWorker", task: Task, error: BaseException | None) -> None:
        if isinstance(error, BrokenExecutor):
            raise error
        try:
            if error is not None:
                native.failed(task.id, reason_of(error), None)
                return
            native.done(task.id, None)
        except QuicxError as lost:
            # The task will be delivered again, because delivery is at least once.
            _log.warning("the outcome of task %d could not be reported: %s", task.id, lost)
            return
        if self._spool is not None:
            try:
                self._spool.drop(task.payload)
            except (OSError, QuicxError) as stays:
                _log.warning("the payload of task %d stays in the spool: %s", task.id, stays)

    def __enter__(self) -> Self:
        """Return the worker itself, without starting it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the worker."""
        self.close()

    def __reduce__(self) -> NoReturn:
        """Not picklable: it is a live connection."""
        raise TypeError("a Worker is a live connection and cannot be pickled")


def _call(function: _Function, payload: bytes) -> None:
    """Run a function, here or in a process of the pool; its result is dropped, so it need not be picklable."""
    function(payload)


def check_not_stopped(stopped: bool) -> None:
    """Raise an error if a worker that is started was stopped before: it would end without running any task."""
    if stopped:
        raise QuicxError("the worker was stopped, so it cannot be started again: make another one", "misuse")


def function_for(functions: Mapping[str, _Any], type: str) -> _Any:  # noqa: A002
    """Return the function for a type of tasks.

    Raises:
        TaskFailed: If there is none; only a daemon without SUBSCRIBE delivers such a task.
    """
    function = functions.get(type)
    if function is None:
        raise TaskFailed(f"no function is registered for tasks of type {type}")
    return function


def reason_of(error: BaseException) -> bytes:
    """Return the reason of a failure for an exception."""
    text = str(error) if isinstance(error, TaskFailed | QuicxError) else f"{type(error).__name__}: {error}"
    return text.encode("utf-8", "backslashreplace")
