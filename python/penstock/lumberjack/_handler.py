"""A logging handler that sends records as events."""

import logging
import socket
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from threading import Event as Flag
from threading import Lock, Thread

from penstock.lumberjack._event import timestamp
from penstock.lumberjack._sender import Sender

__all__ = ["LogHandler"]

_AT_ONCE = 1_024


class LogHandler(logging.Handler):
    """A handler that sends log records with a `Sender`, from a thread of its own, so that logging never waits.

    An event has ``@timestamp``, ``message``, ``log`` (``level``, ``logger``), ``process`` (``pid``, ``name``), ``host``
    (``name``) and, for an exception, ``error`` (``stack_trace``). If ``capacity`` records are waiting, further ones are
    dropped and counted. So are records that the sender does not accept in time when the handler is closed: a program
    ends even if no receiver can be reached.

    >>> import logging
    >>> from penstock.lumberjack import Receiver
    >>> with Receiver() as receiver, Sender(receiver.address) as sender:
    ...     handler = LogHandler(sender)
    ...     _ = handler.handle(logging.makeLogRecord({"name": "app", "msg": "started", "levelname": "INFO"}))
    ...     batch = receiver.receive()
    ...     [event.content["message"] for event in batch.events()]
    ...     batch.ack()
    ...     handler.close()
    ['started']
    """

    def __init__(
        self, sender: Sender, level: int = logging.NOTSET, *, capacity: int = 65_536, grace: float = 5.0
    ) -> None:
        """Make a handler; the caller closes the sender after the handler.

        Args:
            sender: A sender of J or D frames.
            level: The lowest level that is sent.
            capacity: The most records that may wait to be sent.
            grace: Seconds that `close`, and so the end of a program, waits for the sender to accept waiting records.
        """
        super().__init__(level)
        self._sender = sender
        self._capacity = capacity
        self._grace = grace
        # Counters: the first two are written under the lock of the handler, the next two by the thread that sends.
        self._refused = 0
        self._queued = 0
        self._accepted = 0
        self._failed = 0
        self._unsent: int | None = None
        self._given_up = False
        self._records: SimpleQueue[dict[str, object] | None] = SimpleQueue()
        self._host = socket.gethostname()
        self._ended = Flag()
        self._starting = Lock()
        self._thread: Thread | None = None

    @property
    def dropped(self) -> int:
        """Records that were dropped: too many waited, or the sender had failed or did not accept them in time."""
        return self._refused + (self._failed if self._unsent is None else self._unsent)

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record, or drop it if the queue is full or the handler is closed."""
        if self._ended.is_set() or self._records.qsize() >= self._capacity:
            self._refused += 1
            return
        try:
            self._records.put(self._event(record))
            self._queued += 1
        except Exception:  # noqa: BLE001 - logging hands it to whoever looks at handlers that fail
            self.handleError(record)
            return
        with self._starting:
            if self._thread is None:
                self._thread = Thread(target=self._send, name="penstock-log", daemon=True)
                self._thread.start()

    def _event(self, record: logging.LogRecord) -> dict[str, object]:
        event: dict[str, object] = {
            "@timestamp": timestamp(datetime.fromtimestamp(record.created, UTC)),
            "message": record.getMessage() if self.formatter is None else self.format(record),
            "log": {"level": record.levelname, "logger": record.name},
            "process": {"pid": record.process, "name": record.processName},
            "host": {"name": self._host},
        }
        if record.exc_info:
            event["error"] = {"stack_trace": (self.formatter or logging.Formatter()).formatException(record.exc_info)}
        return event

    def _send(self) -> None:
        while not self._given_up and (record := self._records.get()) is not None:
            records = [record]
            try:
                while len(records) < _AT_ONCE and (record := self._records.get_nowait()) is not None:
                    records.append(record)
            except Empty:
                record = records[0]
            self._give(records)
            if record is None:
                return

    def _give(self, records: list[dict[str, object]]) -> None:
        try:
            self._sender.send(records, wait=False)
        except Exception:  # noqa: BLE001 - whatever it is, the others are to be sent
            if self._given_up:
                return
            if len(records) == 1:
                self._failed += 1
                return
            for record in records:
                self._give([record])
        else:
            self._accepted += len(records)

    def close(self) -> None:
        """Pass waiting records to the sender, for up to ``grace`` seconds.

        Call `Sender.close` afterwards, which waits for the acknowledgements.
        """
        self.acquire()
        closed = self._ended.is_set()
        # Under the handler's lock, so that no record is queued behind the end.
        self._ended.set()
        self.release()
        if not closed:
            if self._thread is not None:
                self._records.put(None)
                self._thread.join(self._grace)
                # If it is alive, it waits for room in the sender, which may never come.
                self._given_up = self._thread.is_alive()
                self._thread = None
            self._unsent = self._queued - self._accepted
        super().close()
