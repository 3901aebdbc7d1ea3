"""The hand-over of a PipeStream server's claim checks to a Quicx queue: each is a task, whose outcome settles it.

::

    claim checks that are open ──submit, under a key──▶ queue ──▶ worker
             ▲                                            │ DONE, FAILED, dead
             └── COMPLETE, FAILED ◀── settle, once ◀──────┘

Nothing is stored here. A process that restarts finds the open claim checks and submits them again. The key, a hash of
the session and the ID, makes it the same task if the daemon still knows it, and another one if it does not. So a task
is run at least once, and a claim check is settled once.
"""

import hashlib
import json
import logging
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Self
from urllib.parse import parse_qsl, urlsplit

from penstock._addresses import check_address, fingerprint_digits
from penstock._backoff import pauses
from penstock.errors import PipeStreamError, QuicxError
from penstock.pipestream._codes import Status
from penstock.pipestream._keys import misuse
from penstock.pipestream._messages import SetAside, set_aside_of

if TYPE_CHECKING:
    from penstock import _core
    from penstock.quicx import Outcome, Producer

__all__ = ["TASK", "HandOver", "Queue"]

TASK = "pipestream.claim"
"""The type of the tasks."""

_LOG = logging.getLogger("penstock.pipestream")
_FILES = ("ca", "cert", "key")
# Seconds between the thread's checks whether it was stopped, and the longest pause before it connects again.
_LOOK = 0.5
_LONGEST = 15.0
_UNKNOWN = 2
_TOO_LARGE = 3
# The timeout of a submit, in seconds.
_PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class Queue:
    """The daemon of the tasks: ``quicx://HOST:PORT``, with ``?fingerprint=HEX`` or ``?ca=FILE`` for another machine.

    >>> Queue.parse("quicx://127.0.0.1:16381").address
    '127.0.0.1:16381'
    """

    address: str
    """``HOST:PORT``."""
    trust: dict[str, str] = field(default_factory=dict)
    """The arguments ``fingerprint``, ``ca``, ``cert`` and ``key`` of `penstock.quicx.Producer`."""

    @classmethod
    def parse(cls, url: str) -> Self:
        """Parse a URL.

        Raises:
            PipeStreamError: Of kind "misuse"; the message states what is wrong with the URL.
        """
        from penstock._addresses import is_local

        parts = urlsplit(url)
        if parts.scheme != "quicx" or parts.path.strip("/") or parts.fragment:
            raise misuse(f"a queue must be quicx://HOST:PORT, not {url!r}")
        try:
            address = check_address(parts.netloc)
            given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
            trust = {name: fingerprint_digits(value) if name == "fingerprint" else value for name, value in given}
        except ValueError as error:
            raise misuse(f"the queue {url!r}: {error}") from None
        if len(trust) != len(given) or not set(trust) <= {"fingerprint", *_FILES}:
            raise misuse(f"the queue {url!r} accepts only fingerprint, ca, cert and key, each once")
        if ("cert" in trust) != ("key" in trust):
            raise misuse(f"the queue {url!r}: cert and key must be used together")
        if ("fingerprint" in trust) + ("ca" in trust) != 1 and (trust or not is_local(address)):
            raise misuse(f"the queue {url!r}: another machine requires exactly one of ?fingerprint=HEX and ?ca=FILE")
        return cls(address, trust)

    def connect(self) -> "Producer":
        """Connect to the daemon; raise ``QuicxError`` if that fails."""
        from penstock.quicx import Producer

        trust = self.trust
        return Producer(
            self.address,
            fingerprint=trust.get("fingerprint"),
            ca=trust.get("ca"),
            cert=trust.get("cert"),
            key=trust.get("key"),
        )


class HandOver:
    """The thread that submits a server's claim checks and settles them, until it is stopped."""

    def __init__(self, server: "_core.Server", queue: Queue) -> None:
        self._server = server
        self._queue = queue
        self._stopped = Event()
        self._lock = Lock()
        self._handed: set[int] = set()
        self._runs: Counter[int] = Counter()
        self._due = False
        self._broken: QuicxError | None = None
        self._thread = Thread(target=self._run, name="penstock-hand-over", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; tasks stay in the queue, and the next process settles them."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        delays = pauses(_LOOK, _LONGEST)
        while not self._stopped.is_set():
            try:
                with self._queue.connect() as producer:
                    delays = pauses(_LOOK, _LONGEST)
                    self._serve(producer)
            except (QuicxError, PipeStreamError, OSError) as error:
                if not self._stopped.is_set():
                    _LOG.warning("claim checks cannot be submitted to %s: %s", self._queue.address, error)
            self._stopped.wait(next(delays))

    def _serve(self, producer: "Producer") -> None:
        """Submit the open claim checks, and new ones, while the connection lasts."""
        with self._lock:
            self._handed.clear()
            self._broken = None
        self._submit(producer, self._server.open_claims())
        while not self._stopped.is_set():
            rows = self._server.wait_claims(_LOOK)
            if self._broken is not None:
                raise self._broken
            if rows is None:
                return
            if self._due:
                self._due = False
                rows = self._server.open_claims()
            self._submit(producer, rows)

    def _submit(self, producer: "Producer", rows: "list[_core._ClaimRow]") -> None:
        """Submit the claim checks that were not submitted over this connection yet."""
        for row in map(set_aside_of, rows):
            claim = row.claim.id
            if claim is None:
                continue
            with self._lock:
                if claim in self._handed:
                    continue
                self._handed.add(claim)
            if self._stopped.is_set():
                return
            future = self._hand(producer, row)
            future.add_done_callback(partial(self._over, row))

    def _hand(self, producer: "Producer", row: SetAside) -> "Future[Outcome]":
        payload = row.to_dict()
        key = self._key(row)
        try:
            return producer.future(TASK, json.dumps(payload).encode(), key=key, timeout=_PATIENCE)
        except QuicxError as error:
            if error.code != _TOO_LARGE:
                raise
        # Names have no length limit; a worker can find them by session, scope and entity.
        payload.update(document=None, path=None, reason=None)
        return producer.future(TASK, json.dumps(payload).encode(), key=key, timeout=_PATIENCE)

    def _key(self, row: SetAside) -> bytes:
        runs = 0 if row.claim.id is None else self._runs[row.claim.id]
        return hashlib.sha256(f"{TASK} {row.claim.session} {row.claim.hex} {runs}".encode()).digest()[:16]

    def _over(self, row: SetAside, future: "Future[Outcome]") -> None:
        """Settle the claim check of a task that has ended; runs in the producer's thread."""
        claim = row.claim.id
        if claim is None or self._stopped.is_set():
            return
        error = future.exception()
        if isinstance(error, QuicxError) and error.code == _UNKNOWN:
            # The task ended so long ago that the daemon has forgotten its outcome: submit it again, under another key.
            with self._lock:
                self._runs[claim] += 1
                self._handed.discard(claim)
                self._due = True
            return
        if error is not None:
            self._broken = error if isinstance(error, QuicxError) else QuicxError(str(error), "io")
            return
        outcome = future.result()
        status = Status.COMPLETE if outcome.ok else Status.FAILED
        try:
            self._server.settle(claim, status)
        except PipeStreamError as refused:
            _LOG.info("the claim check %s was already settled: %s", row.claim.hex, refused)
            return
        finally:
            with self._lock:
                self._handed.discard(claim)
                self._runs.pop(claim, None)
        why = "" if outcome.failure is None else f": {outcome.failure.decode('utf-8', 'backslashreplace')}"
        _LOG.info("the claim check %s is %s%s", row.claim.hex, status.name, why)
