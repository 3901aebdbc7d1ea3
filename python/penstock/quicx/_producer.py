"""Producers, and monitors: whatever asks a daemon and is answered."""

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
"""Bytes of a key."""

# How often the thread that waits for outcomes looks whether it is still wanted.
_LOOK = 0.5
# Seconds for an answer on which nothing depends but a file.
_ANSWER = 10.0


@dataclass(frozen=True, slots=True)
class Stats:
    """A daemon's numbers, as STATS_RESPONSE has them."""

    queue_depth: int
    """Tasks that wait."""
    workers_total: int
    """Workers that are registered."""
    workers_idle: int
    """Those of them that hold no task."""
    pmad_bytes_used: int
    """The sum of the sizes of the pool's allocated blocks."""
    pmad_bytes_total: int
    """Bytes of the pool."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a task.

    >>> Outcome(7, b"no such address").ok
    False
    """

    id: int
    """The task."""
    failure: bytes | None = None
    """Why it failed, as the worker said it last; ``max attempts`` where the last worker was gone or silent; None: it is
    done."""

    @property
    def ok(self) -> bool:
        """Whether it is done."""
        return self.failure is None


@dataclass(frozen=True, slots=True)
class DeadTask:
    """A task on the dead list."""

    id: int
    """Its ID."""
    type: str
    """Its type."""
    attempts: int
    """Deliveries."""
    reason: str
    """Why the last one failed."""


class Producer:
    """A connection to a daemon, for submits, outcomes, numbers and the dead list. Any number of threads may share it.

    Args:
        address: ``HOST:PORT`` of the daemon.
        socket: The path of its Unix socket, instead of an address.
        fingerprint: Trust the daemon whose certificate has this SHA-256.
        ca: Trust daemons that this CA (PEM) has signed.
        system_ca: Trust what the system trusts. Without any of these it is plain, which is for this machine only.
        cert: Our own certificate (PEM), with ``key``.
        key: Its private key (PEM).
        server_name: The name that the certificate must be for; by default the host.
        plain: Speak plain text to other machines too.
        timeout: Seconds that connecting may take.
        heartbeat: Seconds between questions to the daemon whether it is there, while nothing else waits for its answer;
            0: none. Three without an answer end the connection. Where a connection has ended, all calls that wait
            raise, and the next call makes another one.
        spool: A folder, or a URI of an object store, that workers have too: payloads larger than ``spool_above`` are
            put there, and the task refers to them. By default none, and what does not fit into the daemon's largest
            class is refused.
        spool_above: Bytes of a payload.
        storage: Options of the object store: `penstock.pipestream.SinkReader` names them.

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
        """Connect; the class says what the arguments are.

        Raises:
            QuicxError: Of kind "misuse" for options that do not fit, "io" where the daemon cannot be reached,
                "deadline" where it does not answer.
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
        """Submit a task; give its ID when the daemon has taken it: with a journal, when it is on disk.

        Args:
            type: Its type, 1 to 255 bytes of UTF-8.
            payload: What it is.
            key: 16 bytes, random or a hash of what tells this task from all others: however often they are submitted,
                there is one task, whose ID is given. The daemon knows the keys of all tasks that it has, also after
                a restart with a journal, and of the last 262,144 that are over.
            timeout: Seconds; after them it is open whether it was taken. By default for ever.

        Raises:
            QuicxError: With ``code`` 1 where the queue is full, 3 where the payload is too large, 4 where the type is
                not taken. Of kind "io" where the connection is over, and it is open whether it was taken.
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
        """Submit tasks together, which is much faster than one by one; give their IDs, in their order.

        Args:
            type: Their type.
            payloads: What they are.
            keys: As for `submit`, one for each. By default there are none.
            timeout: As for `submit`.

        Raises:
            QuicxError: As for `submit`, for the first that was refused. Others were taken: ``error.accepted`` has
                the IDs, 0 for each that was refused.
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
        """Remove the files that were made for tasks that are done since an earlier submit."""
        asked = found.doubtful(ids, keys)
        if asked:
            # The tasks are taken, whatever becomes of this.
            with suppress(QuicxError):
                done = native.done_before(asked, _ANSWER)
                found.done_before(ids, compress(asked, done))

    def observe(self, id: int, timeout: float | None = None) -> Outcome:  # noqa: A002
        """Wait until a task is over, at most ``timeout`` seconds.

        The daemon remembers what became of the last 65,536 tasks, for 10 minutes.

        Raises:
            QuicxError: With ``code`` 2 where the daemon does not know the task; of kind "deadline" when it is late.
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
        """Submit a task, and give a future of what becomes of it. It cannot be cancelled: the task is in the queue.

        The arguments are those of `submit`. Where 65,536 futures are open, this waits until one of them is done.

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
        """Resolve futures as outcomes come."""
        while not self._closed:
            found = native.next_outcome(_LOOK)
            if found is None:
                continue
            task, failure, error = found
            with self._lock:
                waiting = self._futures.get(task) or [Future()]
                # Each was watched for itself: this is the answer to one of them.
                future = waiting.pop(0)
                if not waiting:
                    self._futures.pop(task, None)
            if error is None:
                future.set_result(Outcome(task, failure))
            else:
                future.set_exception(error)

    def stats(self, timeout: float | None = 10.0) -> Stats:
        """Ask for the daemon's numbers."""
        return Stats(*self._open().stats(timeout))

    def dead(self, timeout: float | None = 10.0) -> list[DeadTask]:
        """Ask for the dead list: all of it, in the order of the IDs. A daemon before 0x29 gives what 512 KiB hold."""
        return [
            DeadTask(id, kind, attempts, reason.decode("utf-8", "backslashreplace"))
            for id, kind, attempts, reason in self._open().dead_list(timeout)  # noqa: A001
        ]

    def requeue(self, id: int, timeout: float | None = 10.0) -> None:  # noqa: A002
        """Have a dead task queued again, behind all others, with all its attempts.

        Raises:
            QuicxError: With ``code`` 2 where it is not on the dead list.
        """
        self._open().dead_requeue(check_id(id), timeout)

    def drop(self, id: int, timeout: float | None = 10.0) -> None:  # noqa: A002
        """Have a dead task forgotten.

        Raises:
            QuicxError: With ``code`` 2 where it is not on the dead list.
        """
        self._open().dead_drop(check_id(id), timeout)

    def stop_daemon(self, timeout: float | None = 10.0) -> None:
        """Have the daemon stop, as SIGTERM does; only this machine and clients with a certificate may."""
        self._open().stop(timeout)

    def close(self) -> None:
        """End the connection. Tasks that were taken stay; futures that are open fail."""
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
        """Give itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def __reduce__(self) -> NoReturn:
        """Refuse a pickle."""
        raise TypeError("a Producer is a live connection and cannot be pickled")


def check_heartbeat(seconds: float) -> float:
    """Give an interval that may be one."""
    check_number("heartbeat", seconds)
    return seconds


def check_id(id: int) -> int:  # noqa: A002
    """Give a task's ID that may be one."""
    if not 0 <= id < 1 << 32:
        raise QuicxError(f"a task's ID is a number of 32 bits, not {id}", "misuse")
    return id


def check_key(key: bytes) -> bytes:
    """Give a key that is one."""
    if len(key) != KEY:
        raise QuicxError(f"a task's key has {KEY} bytes, not {len(key)}", "misuse")
    return key


def check_keys(keys: Iterable[bytes] | None) -> list[bytes] | None:
    """Give keys that are some, or None."""
    return None if keys is None else [check_key(key) for key in keys]


def ids_of(ids: list[int], refused: list[tuple[int, int, str]]) -> list[int]:
    """Give the IDs, or raise what the first refusal says."""
    if refused:
        index, code, message = refused[0]
        kind: ErrorKind = "limit" if code in {1, 3} else "violation"
        text = f"{len(refused)} of {len(ids)} tasks were refused, the first at {index}: {message}"
        raise QuicxError(text, kind, code, ids)
    return ids
