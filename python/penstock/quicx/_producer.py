"""Producers, which submit tasks, and also monitor a daemon and its dead list."""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from itertools import compress
from threading import Lock, Thread
from types import TracebackType
from typing import NoReturn, Self

from penstock import _core
from penstock.errors import ErrorKind, QuicxError
from penstock.quicx._limits import check_number
from penstock.quicx._options import DEFAULT_ADDRESS, PathLike, ReachOptions
from penstock.quicx._spool import Spool, Spooled, spooled

__all__ = [
    "KEY",
    "DeadTask",
    "Outcome",
    "Producer",
    "Stats",
    "check_heartbeat",
    "check_id",
    "check_key",
    "check_keys",
    "ids_of",
]

KEY = 16
"""The bytes of a key."""

# Seconds between the checks of the thread that waits for outcomes whether the producer was closed.
_LOOK = 0.5
# The timeout, in seconds, of a question that only decides whether a file can be removed.
_ANSWER = 10.0


@dataclass(frozen=True, slots=True)
class Stats:
    """The current numbers of a daemon, as in STATS_RESPONSE."""

    queue_depth: int
    """The number of waiting tasks."""
    workers_total: int
    """The number of registered workers."""
    workers_idle: int
    """The number of registered workers without a task."""
    pmad_bytes_used: int
    """The sum of the sizes of the pool's allocated blocks."""
    pmad_bytes_total: int
    """The bytes of the pool."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a task.

    >>> Outcome(7, b"no such address").ok
    False
    """

    id: int
    """The task's ID."""
    failure: bytes | None = None
    """The last reason of a worker; ``max attempts`` if the last worker disconnected or timed out. None if the task is
    done."""

    @property
    def ok(self) -> bool:
        """Whether the task is done."""
        return self.failure is None


@dataclass(frozen=True, slots=True)
class DeadTask:
    """A task on the dead list."""

    id: int
    """The task's ID."""
    type: str
    """The task's type."""
    attempts: int
    """The number of deliveries."""
    reason: str
    """Why the last delivery failed."""


class Producer:
    """A connection to a daemon that submits tasks, waits for outcomes, and reads the statistics and the dead list.

    Any number of threads may share it. If the connection ends, all waiting calls raise, and the next call connects
    again.

    Args:
        address: ``HOST:PORT`` of the daemon.
        socket: The path of the daemon's Unix socket, instead of an address.
        fingerprint: Trust the daemon whose certificate has this SHA-256, in hex.
        ca: Trust daemons whose certificate is signed by this CA (PEM file).
        system_ca: Trust daemons whose certificate is signed by a CA of the system's store. Without any of these three
            there is no TLS, which is allowed only for a daemon on this machine.
        cert: The producer's certificate (PEM file), with ``key``.
        key: The certificate's private key (PEM file).
        server_name: The name that the daemon's certificate must have; by default the host.
        plain: Whether to connect without TLS to other machines too.
        timeout: Seconds that connecting may take.
        heartbeat: Seconds between heartbeats to the daemon while no call waits for its answer; 0: none. Three without
            an answer end the connection.
        spool: A folder, or a URI in an object store, that workers can read too: payloads larger than ``spool_above``
            are stored there, and tasks refer to them. By default there is none, and payloads that do not fit into the
            daemon's largest size class are rejected.
        spool_above: The largest payload, in bytes, that is sent without the spool.
        storage: Options of the object store, such as ``{"endpoint": URL}``; by default the environment configures it.

    >>> from penstock.quicx import Daemon
    >>> with Daemon() as daemon, Producer(daemon.address) as producer:
    ...     producer.submit("mail", b"hello"), producer.submit_many("mail", [b"a", b"b"])
    ...     producer.stats().queue_depth
    (1, [2, 3])
    3
    """

    __slots__ = ("_closed", "_futures", "_lock", "_native", "_spool", "_thread")

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
        """Connect to the daemon; the class describes the arguments.

        Raises:
            QuicxError: Of kind "misuse" for invalid options, "io" if the daemon cannot be reached, "deadline" if it
                does not answer.
        """
        options = ReachOptions(
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
        self._spool = Spool.at(spool, spool_above, storage)
        self._native: _core.QuicxProducer | None = _core.QuicxProducer(options, check_heartbeat(heartbeat))
        self._futures: dict[int, list[Future[Outcome]]] = {}
        self._lock = Lock()
        self._thread: Thread | None = None
        self._closed = False

    def _open(self) -> "_core.QuicxProducer":
        if self._native is None:
            raise QuicxError("the producer is closed", "misuse")
        return self._native

    def submit(
        self,
        type: str,  # noqa: A002
        payload: bytes = b"",
        *,
        key: bytes | None = None,
        timeout: float | None = None,
    ) -> int:
        """Submit a task; return its ID once the daemon has accepted it and, with a journal, written it to disk.

        Args:
            type: The task's type, 1 to 255 bytes of UTF-8.
            payload: The task's payload.
            key: 16 bytes that identify the task, random or a hash of its identity: however often a key is submitted,
                there is one task, and its ID is returned. The daemon knows the keys of all its tasks, also after a
                restart with a journal, and of the last 262,144 tasks that have ended since its start.
            timeout: Seconds to wait; by default indefinitely. After the timeout it is unknown whether the task was
                accepted.

        Raises:
            QuicxError: With ``code`` 1 if the queue is full, 3 if the payload is too large, 4 if the type is not
                accepted. Of kind "io" if the connection has ended; then it is unknown whether the task was accepted.
        """
        native, checked = self._open(), None if key is None else check_key(key)
        keys = None if checked is None else [checked]
        found = spooled(self._spool, [payload], keys)
        try:
            task = native.submit(type, found.payloads[0], checked, timeout)
        except Exception as error:
            found.refused(error)
            raise
        self._clean(native, found, [task], keys)
        return task

    def submit_many(
        self,
        type: str,  # noqa: A002
        payloads: Iterable[bytes],
        *,
        keys: Iterable[bytes] | None = None,
        timeout: float | None = None,
    ) -> list[int]:
        """Submit many tasks at once, which is much faster than one by one; return their IDs in the same order.

        Args:
            type: The type of all tasks.
            payloads: The payload of each task.
            keys: The key of each task, as for `submit`. By default they have none.
            timeout: As for `submit`.

        Raises:
            QuicxError: As for `submit`, for the first task that was rejected. Other tasks may have been accepted:
                ``error.accepted`` has their IDs, and 0 for each task that was rejected.
        """
        contents, checked, native = list(payloads), check_keys(keys), self._open()
        if checked is not None and len(checked) != len(contents):
            raise QuicxError(f"{len(contents)} payloads and {len(checked)} keys", "misuse")
        found = spooled(self._spool, contents, checked)
        try:
            ids = ids_of(*native.submit_many(type, found.payloads, checked, timeout))
        except Exception as error:
            found.refused(error)
            raise
        self._clean(native, found, ids, checked)
        return ids

    @staticmethod
    def _clean(native: "_core.QuicxProducer", found: Spooled, ids: list[int], keys: list[bytes] | None) -> None:
        """Remove the new files of tasks that were already done after an earlier submit."""
        asked = found.doubtful(ids, keys)
        if asked:
            # The tasks are accepted, so an error here must not fail the submit.
            with suppress(QuicxError):
                done = native.done_before(asked, _ANSWER)
                found.done_before(ids, compress(asked, done))

    def observe(self, id: int, timeout: float | None = None) -> Outcome:  # noqa: A002
        """Wait until a task has ended and return its outcome.

        The daemon remembers the outcomes of the last 65,536 tasks for 10 minutes.

        Args:
            id: The task's ID.
            timeout: Seconds to wait; by default indefinitely.

        Raises:
            QuicxError: With ``code`` 2 if the daemon does not know the task; of kind "deadline" after the timeout.
        """
        return Outcome(id, self._open().observe(check_id(id), timeout))

    def future(
        self,
        type: str,  # noqa: A002
        payload: bytes = b"",
        *,
        key: bytes | None = None,
        timeout: float | None = None,
    ) -> Future[Outcome]:
        """Submit a task and return a future of its outcome, which cannot be cancelled, because the task is queued.

        The arguments are those of `submit`. While 65,536 futures are pending, the call waits until one of them is done.

        Raises:
            QuicxError: As for `submit`.

        >>> from penstock.quicx import Daemon, Worker
        >>> with Daemon() as daemon, Producer(daemon.address) as producer, Worker(daemon.address) as worker:
        ...     _ = worker.task("shout")(print)
        ...     worker.start()
        ...     producer.future("shout", b"hello").result().ok
        b'hello'
        True
        """
        task = self.submit(type, payload, key=key, timeout=timeout)
        future: Future[Outcome] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            self._futures.setdefault(task, []).append(future)
            if self._thread is None:
                self._thread = Thread(target=self._resolve, args=(self._open(),), name="penstock-outcomes", daemon=True)
                self._thread.start()
        self._open().watch(task)
        return future

    def _resolve(self, native: "_core.QuicxProducer") -> None:
        """Resolve futures as outcomes arrive."""
        while not self._closed:
            found = native.next_outcome(_LOOK)
            if found is None:
                continue
            task, failure, error = found
            with self._lock:
                waiting = self._futures.get(task) or [Future()]
                # Each future of a task is watched separately, so this outcome resolves one of them.
                future = waiting.pop(0)
                if not waiting:
                    self._futures.pop(task, None)
            if error is None:
                future.set_result(Outcome(task, failure))
            else:
                future.set_exception(error)

    def stats(self, timeout: float | None = 10.0) -> Stats:
        """Return the daemon's current numbers."""
        return Stats(*self._open().stats(timeout))

    def dead(self, timeout: float | None = 10.0) -> list[DeadTask]:
        """Return the whole dead list, in the order of the IDs; a daemon without DEAD_AFTER returns at most 512 KiB."""
        return [
            DeadTask(id, kind, attempts, reason.decode("utf-8", "backslashreplace"))
            for id, kind, attempts, reason in self._open().dead_list(timeout)  # noqa: A001
        ]

    def requeue(self, id: int, timeout: float | None = 10.0) -> None:  # noqa: A002
        """Queue a dead task again, after all others, with all its attempts.

        Raises:
            QuicxError: With ``code`` 2 if it is not on the dead list.
        """
        self._open().dead_requeue(check_id(id), timeout)

    def drop(self, id: int, timeout: float | None = 10.0) -> None:  # noqa: A002
        """Remove a dead task from the dead list.

        Raises:
            QuicxError: With ``code`` 2 if it is not on the dead list.
        """
        self._open().dead_drop(check_id(id), timeout)

    def stop_daemon(self, timeout: float | None = 10.0) -> None:
        """Stop the daemon as SIGTERM does; allowed only from its own machine and for clients with a certificate."""
        self._open().stop(timeout)

    def close(self) -> None:
        """End the connection. Tasks that were accepted stay in the queue; pending futures fail."""
        self._closed = True
        if self._native is not None:
            self._native.close()
            self._native = None
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        with self._lock:
            left = [future for futures in self._futures.values() for future in futures]
            self._futures.clear()
        for future in left:
            future.set_exception(QuicxError("the producer was closed", "misuse"))

    def __enter__(self) -> Self:
        """Return the producer itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the producer."""
        self.close()

    def __reduce__(self) -> NoReturn:
        """Not picklable: it is a live connection."""
        raise TypeError("a Producer is a live connection and cannot be pickled")


def check_heartbeat(seconds: float) -> float:
    """Return the interval of heartbeats; reject an invalid one."""
    check_number("heartbeat", seconds)
    return seconds


def check_id(id: int) -> int:  # noqa: A002
    """Return the ID of a task; reject one that is not of 32 bits."""
    if not 0 <= id < 1 << 32:
        raise QuicxError(f"a task ID must be a 32-bit number, not {id}", "misuse")
    return id


def check_key(key: bytes) -> bytes:
    """Return the key of a task; reject one of the wrong length."""
    if len(key) != KEY:
        raise QuicxError(f"a task key must have {KEY} bytes, not {len(key)}", "misuse")
    return key


def check_keys(keys: Iterable[bytes] | None) -> list[bytes] | None:
    """Return the keys of tasks, or None; reject keys of the wrong length."""
    return None if keys is None else [check_key(key) for key in keys]


def ids_of(ids: list[int], refused: list[tuple[int, int, str]]) -> list[int]:
    """Return the IDs, or raise an error for the first refusal."""
    if refused:
        index, code, message = refused[0]
        kind: ErrorKind = "limit" if code in {1, 3} else "violation"
        text = f"{len(refused)} of {len(ids)} tasks were rejected, the first at {index}: {message}"
        raise QuicxError(text, kind, code, ids)
    return ids
