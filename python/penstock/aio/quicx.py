"""Quicx for asyncio: `Daemon`, `Producer` and `Worker` with coroutine methods.

Everything else is the same as in `penstock.quicx`.
"""

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import compress
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar

from penstock import _core
from penstock._backoff import pauses
from penstock.aio._loop import futures, result, seconds_or
from penstock.errors import QuicxError
from penstock.quicx._daemon import DaemonCounters
from penstock.quicx._options import DEFAULT_ADDRESS, PathLike, Policy, ReachOptions, start_options
from penstock.quicx._producer import DeadTask, Outcome, Stats, check_heartbeat, check_id, check_key, check_keys, ids_of
from penstock.quicx._spool import Spool, Spooled, content_of, spooled
from penstock.quicx._worker import Task, TaskFailed, check_not_stopped, function_for, reason_of

__all__ = [
    "Daemon",
    "DaemonCounters",
    "DeadTask",
    "Outcome",
    "Policy",
    "Producer",
    "Stats",
    "Task",
    "TaskFailed",
    "Worker",
]

_log = logging.getLogger(__name__)

_Function = Callable[[bytes], Awaitable[object]]
_F = TypeVar("_F", bound=_Function)


def _late() -> QuicxError:
    return QuicxError("the operation timed out", "deadline")


class Daemon:
    """A task queue in this process, like `penstock.quicx.Daemon`. It starts when it is awaited or entered.

    >>> import asyncio
    >>> async def main():
    ...     async with Daemon() as daemon, Producer(daemon.address) as producer:
    ...         print(await producer.submit("mail", b"hello"), daemon.stats.queue_depth)
    >>> asyncio.run(main())
    1 1
    """

    __slots__ = ("__weakref__", "_native", "_options")

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
        policies: dict[str, Policy] | None = None,
        allow_types: Iterable[str] | None = None,
        max_connections: int = 16_384,
        max_connections_per_address: int | None = None,
        idle_timeout: float = 900.0,
        metrics: str | None = None,
        state_dir: PathLike | None = None,
    ) -> None:
        """Make a daemon. The arguments are those of `penstock.quicx.Daemon`."""
        self._options = start_options(
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
        self._native: _core.QuicxDaemon | None = None

    async def _start(self) -> Self:
        if self._native is None:
            self._native = await result(_core.quicx_start(futures(), self._options))
        return self

    def __await__(self) -> Generator[Any, Any, Self]:
        """Start to listen."""
        return self._start().__await__()

    async def __aenter__(self) -> Self:
        """Start to listen."""
        return await self._start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the daemon; after an exception, without waiting for workers."""
        await (self.close() if kind is None else self.close(drain=0))

    def _running(self) -> "_core.QuicxDaemon":
        if self._native is None:
            raise QuicxError("await the daemon, or enter it, before using it", "misuse")
        return self._native

    @property
    def address(self) -> str:
        """The address on which the daemon listens, ``HOST:PORT``.

        It is the plain-text address if there is one, else the TLS address; empty if there is only a Unix socket.
        """
        native = self._running()
        return native.address() or (native.tls() or ("", ""))[0]

    @property
    def tls_address(self) -> str | None:
        """The address on which the daemon listens with TLS, ``HOST:PORT``; None if it does not."""
        tls = self._running().tls()
        return None if tls is None else tls[0]

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of the daemon's certificate, ``sha256:HEX``; None without TLS."""
        tls = self._running().tls()
        return None if tls is None else tls[1]

    @property
    def metrics_address(self) -> str | None:
        """The address on which metrics are served, ``HOST:PORT``; None if they are not."""
        return self._running().metrics_address()

    @property
    def stats(self) -> Stats:
        """The queue's statistics, as the daemon would answer a STATS request."""
        return Stats(*self._running().stats())

    @property
    def counters(self) -> DaemonCounters:
        """Counters of what the daemon has handled so far."""
        return DaemonCounters(**self._running().counters())

    async def close(self, drain: float = 30.0) -> int:
        """Accept no more tasks, wait up to ``drain`` seconds for workers, then end.

        Returns:
            The number of tasks that are left in the queue.
        """
        return 0 if self._native is None else await result(_core.quicx_stop(futures(), self._native, drain))

    def __reduce__(self) -> NoReturn:
        """Not picklable: it holds a live socket."""
        raise TypeError("a Daemon is a live socket and cannot be pickled")


class _Reaching:
    """The base of `Producer` and `Worker`: the options with which they connect to a daemon."""

    __slots__ = ("__weakref__", "_options")

    def __init__(self, options: ReachOptions) -> None:
        self._options = options.check()

    def __reduce__(self) -> NoReturn:
        """Not picklable: it holds a live connection."""
        raise TypeError(f"a {type(self).__name__} is a live connection and cannot be pickled")


class Producer(_Reaching):
    """A connection that submits tasks and queries outcomes, statistics and the dead list.

    Enter it with ``async with``, or await it.

    >>> import asyncio
    >>> async def main():
    ...     async with Daemon() as daemon, Producer(daemon.address) as producer:
    ...         print(await producer.submit_many("mail", [b"a", b"b"]))
    >>> asyncio.run(main())
    [1, 2]
    """

    __slots__ = ("_heartbeat", "_native", "_spool")

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
        heartbeat: float = 15.0,
        spool: PathLike | None = None,
        spool_above: int = 3_072,
        storage: Mapping[str, str] | None = None,
    ) -> None:
        """Make a producer. The arguments are those of `penstock.quicx.Producer`."""
        super().__init__(
            ReachOptions(
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
            )
        )
        self._heartbeat = check_heartbeat(heartbeat)
        self._spool = Spool.at(spool, spool_above, storage)
        self._native: _core.QuicxProducer | None = None

    async def _start(self) -> Self:
        if self._native is None:
            self._native = await result(_core.quicx_produce(futures(), self._options, self._heartbeat))
        return self

    def __await__(self) -> Generator[Any, Any, Self]:
        """Connect to the daemon."""
        return self._start().__await__()

    async def __aenter__(self) -> Self:
        """Connect to the daemon."""
        return await self._start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the connection."""
        self.close()

    def _open(self) -> "_core.QuicxProducer":
        if self._native is None:
            raise QuicxError("await the producer, or enter it, before using it", "misuse")
        return self._native

    @asynccontextmanager
    async def _spooled(self, payloads: Iterable[bytes], keys: list[bytes] | None) -> AsyncGenerator[Spooled]:
        """Yield the payloads to submit; if the submit fails, remove the spool files of rejected ones."""
        if self._spool is None:
            yield spooled(None, payloads)
            return
        found = await asyncio.to_thread(spooled, self._spool, list(payloads), keys)
        try:
            yield found
        except Exception as error:
            await asyncio.to_thread(found.refused, error)
            raise

    async def _clean(self, found: Spooled, ids: list[int], keys: list[bytes] | None) -> None:
        """Remove the spool files of tasks that had been done before they were submitted again."""
        asked = found.doubtful(ids, keys)
        if asked:
            # The tasks are accepted, even if the cleanup fails.
            with suppress(QuicxError):
                done = await result(_core.quicx_done_before(futures(), self._open(), asked))
                await asyncio.to_thread(found.done_before, ids, list(compress(asked, done)))

    async def submit(
        self,
        type: str,  # noqa: A002
        payload: bytes = b"",
        *,
        key: bytes | None = None,
        timeout: float | None = None,
    ) -> int:
        """Submit a task and return its ID. Arguments and errors are those of `penstock.quicx.Producer.submit`."""
        checked = None if key is None else check_key(key)
        async with seconds_or(timeout, _late()):
            native = self._open()
            keys = None if checked is None else [checked]
            async with self._spooled([payload], keys) as found:
                task = await result(_core.quicx_submit(futures(), native, type, found.payloads[0], checked))
            await self._clean(found, [task], keys)
            return task

    async def submit_many(
        self,
        type: str,  # noqa: A002
        payloads: Iterable[bytes],
        *,
        keys: Iterable[bytes] | None = None,
        timeout: float | None = None,
    ) -> list[int]:
        """Submit several tasks in one request and return their IDs.

        Arguments and errors are those of `penstock.quicx.Producer.submit_many`.
        """
        payloads, checked = list(payloads), check_keys(keys)
        if checked is not None and len(checked) != len(payloads):
            raise QuicxError(f"{len(payloads)} payloads and {len(checked)} keys", "misuse")
        async with seconds_or(timeout, _late()):
            native = self._open()
            async with self._spooled(payloads, checked) as found:
                answers = await result(_core.quicx_submit_many(futures(), native, type, found.payloads, checked))
                ids = ids_of(*answers)
            await self._clean(found, ids, checked)
            return ids

    async def observe(self, id: int, timeout: float | None = None) -> Outcome:  # noqa: A002
        """Wait until a task has ended, at most ``timeout`` seconds, and return its outcome."""
        async with seconds_or(timeout, _late()):
            return Outcome(id, await result(_core.quicx_observe(futures(), self._open(), check_id(id))))

    async def stats(self) -> Stats:
        """Request the daemon's statistics."""
        return Stats(*await result(_core.quicx_stats(futures(), self._open())))

    async def dead(self) -> list[DeadTask]:
        """Request the list of dead tasks."""
        found = await result(_core.quicx_dead_list(futures(), self._open()))
        return [DeadTask(id, kind, n, reason.decode("utf-8", "backslashreplace")) for id, kind, n, reason in found]  # noqa: A001

    async def requeue(self, id: int) -> None:  # noqa: A002
        """Queue a dead task again."""
        await result(_core.quicx_dead(futures(), self._open(), check_id(id), True))

    async def drop(self, id: int) -> None:  # noqa: A002
        """Remove a dead task from the dead list."""
        await result(_core.quicx_dead(futures(), self._open(), check_id(id), False))

    def close(self) -> None:
        """Close the connection. Tasks that were accepted stay in the queue."""
        if self._native is not None:
            self._native.close()
            self._native = None


class Worker(_Reaching):
    """Receives tasks and runs coroutine functions for them, up to ``concurrency`` at once.

    Apart from that it works like `penstock.quicx.Worker`.

    >>> import asyncio
    >>> async def main():
    ...     async with Daemon() as daemon, Producer(daemon.address) as producer:
    ...         worker = Worker(daemon.address, concurrency=8)
    ...         @worker.task("greet")
    ...         async def greet(payload):
    ...             print("hello", payload.decode())
    ...         running = asyncio.create_task(worker.run())
    ...         print((await producer.observe(await producer.submit("greet", b"world"))).ok)
    ...         worker.stop()
    ...         await running
    >>> asyncio.run(main())
    hello world
    True
    """

    __slots__ = ("_concurrency", "_functions", "_heartbeat", "_retry", "_spool", "_stop")

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
        concurrency: int = 1,
        heartbeat: float = 15.0,
        spool: PathLike | None = None,
        storage: Mapping[str, str] | None = None,
        retry: bool = True,
    ) -> None:
        """Make a worker that runs at most ``concurrency`` functions at once.

        The other arguments are those of `penstock.quicx.Worker`.
        """
        super().__init__(
            ReachOptions(
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
            )
        )
        self._concurrency = concurrency
        self._heartbeat = heartbeat
        self._spool = Spool.at(spool, storage=storage)
        self._retry = retry
        self._functions: dict[str, _Function] = {}
        self._stop = asyncio.Event()

    def task(self, type: str) -> Callable[[_F], _F]:  # noqa: A002
        """Decorate the coroutine function that runs the tasks of a type. It receives the payload."""

        def register(function: _F) -> _F:
            is_coroutine: bool = inspect.iscoroutinefunction(function)
            if not is_coroutine:
                raise TypeError("a worker for asyncio requires coroutine functions: async def")
            self._functions[type] = function
            return function

        return register

    def stop(self) -> None:
        """Accept no more tasks; `run` returns once the running ones have finished, and cannot be called again."""
        self._stop.set()

    async def run(self) -> None:
        """Run tasks until `stop` is called.

        If it is cancelled, running tasks are given up, and the daemon delivers them to other workers.

        Raises:
            QuicxError: The daemon cannot be reached at the start, or the connection is lost and ``retry`` is False. Of
                kind "misuse" if the worker was stopped before.
        """
        check_not_stopped(self._stop.is_set())
        if not self._functions:
            raise QuicxError("no function is registered: decorate one with worker.task(TYPE)", "misuse")
        native = await self._connect()
        while True:
            try:
                await self._serve(native)
                return
            except QuicxError as error:
                if not self._retry or error.kind == "misuse":
                    raise
                _log.warning("the worker's connection ended: %s", error)
            finally:
                native.close()
            for pause in pauses():
                if self._stop.is_set():
                    return
                try:
                    native = await self._connect()
                    break
                except QuicxError as error:
                    _log.info("the daemon cannot be reached: %s", error)
                    await asyncio.sleep(pause)

    async def _connect(self) -> "_core.QuicxWorker":
        types = list(self._functions)
        work = _core.quicx_work(futures(), self._options, types, self._concurrency, self._heartbeat)
        return await result(work)

    async def _serve(self, native: "_core.QuicxWorker") -> None:
        stopping = asyncio.ensure_future(self._stop.wait())
        running: set[asyncio.Task[None]] = set()
        coming: asyncio.Task[tuple[int, str, bytes]] | None = None
        try:
            while not self._stop.is_set():
                coming = coming or asyncio.create_task(result(_core.quicx_next(futures(), native)))
                await asyncio.wait({coming, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if coming.done():
                    self._begin(native, running, Task(*coming.result()))
                    coming = None
            await result(_core.quicx_rest(futures(), native))
            # Tasks that arrived before the pause are still to be run.
            while True:
                coming = coming or asyncio.create_task(result(_core.quicx_next(futures(), native)))
                await asyncio.wait({coming}, timeout=0.02)
                if not coming.done():
                    break
                self._begin(native, running, Task(*coming.result()))
                coming = None
            await asyncio.gather(*running)
        finally:
            for each in [stopping, coming, *running]:
                if each is not None:
                    each.cancel()

    def _begin(self, native: "_core.QuicxWorker", running: set[asyncio.Task[None]], task: Task) -> None:
        each = asyncio.create_task(self._run(native, task))
        running.add(each)
        each.add_done_callback(running.discard)

    async def _run(self, native: "_core.QuicxWorker", task: Task) -> None:
        failure: bytes | None = None
        try:
            function = function_for(self._functions, task.type)
            if self._spool is None:
                payload = content_of(None, task.payload)
            else:
                payload = await asyncio.to_thread(self._spool.get, task.payload)
            await function(payload)
        except Exception as error:  # noqa: BLE001 - the task failed, and the submitter receives the reason
            failure = reason_of(error)
        try:
            await result(_core.quicx_verdict(futures(), native, task.id, failure))
        except QuicxError as lost:
            _log.warning("the outcome of task %d could not be reported: %s", task.id, lost)
            return
        if failure is None and self._spool is not None:
            await asyncio.to_thread(self._spool.drop, task.payload)
