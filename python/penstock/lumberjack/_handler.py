"""A logging handler that sends records as events."""

import json
import logging
import os
import socket
import sys
from contextlib import suppress
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from threading import Event as Flag
from threading import Lock, Thread
from time import monotonic

from penstock._addresses import check_address
from penstock.errors import LumberjackError
from penstock.lumberjack._event import json_text, timestamp
from penstock.lumberjack._sender import Sender

__all__ = ["LogHandler"]

_AT_ONCE = 1_024
# What logging itself sets on a record. The rest is from ``extra``, a filter, or a factory of records.
_SET_BY_LOGGING = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"asctime", "message", "taskName"}
_FIELDS = frozenset({"@timestamp", "message", "log", "process", "host", "error", "extra"})


class LogHandler(logging.Handler):
    """A handler that sends log records to a receiver, from a thread of its own, so that logging never waits.

    An event has ``@timestamp``, ``message``, ``log`` (``level``, ``logger``), ``process`` (``pid``, ``name``), ``host``
    (``name``), for an exception ``error`` (``stack_trace``), and the fields that the program has added to the record
    with ``extra=``. Those among them that have one of these names are in the object ``extra``.

    If ``capacity`` records are waiting, further ones are dropped and counted. So are records that the sender does not
    accept in time when the handler is closed: a program ends even if no receiver can be reached. `close` reports on
    stderr how many records were dropped.

    >>> import logging
    >>> from penstock.lumberjack import Receiver
    >>> with Receiver() as receiver, Sender(receiver.address) as sender:
    ...     handler = LogHandler(sender)
    ...     _ = handler.handle(logging.makeLogRecord({"name": "app", "msg": "started", "user": "ada"}))
    ...     batch = receiver.receive()
    ...     [(event.content["message"], event.content["user"]) for event in batch.events()]
    ...     batch.ack()
    ...     handler.close()
    [('started', 'ada')]
    """

    def __init__(
        self, sender: Sender | str, level: int = logging.NOTSET, *, capacity: int = 65_536, grace: float = 5.0
    ) -> None:
        """Make a handler.

        Args:
            sender: A sender of J or D frames, which the caller closes after the handler; or ``HOST:PORT`` of a receiver
                on this machine, for which the handler makes a sender, and closes it. Make a `Sender` for a receiver on
                another machine, to set which certificate it trusts.
            level: The lowest level that is sent.
            capacity: The most records that may wait to be sent.
            grace: Seconds that `close`, and so the end of a program, waits for the sender to accept waiting records; if
                the handler has made the sender, for the acknowledgements too.

        Raises:
            TypeError: ``sender`` is neither a `Sender` nor a str.
            LumberjackError: Of kind "misuse" if the address is invalid, or not on this machine.
        """
        if not isinstance(sender, Sender | str):
            kind = f"{type(sender).__module__}.{type(sender).__qualname__}"
            raise TypeError(f"a handler takes a penstock.lumberjack.Sender, or HOST:PORT of a receiver, not {kind}")
        super().__init__(level)
        self._owns = isinstance(sender, str)
        self._sender = _sender_to(sender) if isinstance(sender, str) else sender
        self._process = os.getpid()
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
        """Records that were dropped: too many waited, or the sender had failed or did not accept them in time.

        If the handler has made the sender, `close` adds those that were not acknowledged in time.
        """
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
        added = {name: _as_it_is(value) for name, value in vars(record).items() if name not in _SET_BY_LOGGING}
        event |= {name: value for name, value in added.items() if name not in _FIELDS}
        if clashing := {name: value for name, value in added.items() if name in _FIELDS}:
            event["extra"] = clashing
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
        """Pass waiting records to the sender, for up to ``grace`` seconds, and report dropped records on stderr.

        If you have made the sender, call `Sender.close` afterwards, which waits for the acknowledgements.
        """
        self.acquire()
        closed = self._ended.is_set()
        # Under the handler's lock, so that no record is queued behind the end.
        self._ended.set()
        self.release()
        # In a forked process the records are those of the parent.
        if not closed and self._process == os.getpid():
            self._finish(monotonic() + self._grace)
            self._report()
        super().close()

    def _finish(self, end: float) -> None:
        if self._thread is not None:
            self._records.put(None)
            self._thread.join(self._grace)
            # If it is alive, it waits for room in the sender, which may never come.
            self._given_up = self._thread.is_alive()
            self._thread = None
        accepted = self._accepted
        if self._owns:
            with suppress(LumberjackError):
                self._sender.close(max(0.0, end - monotonic()))
            try:
                accepted = self._sender.acknowledged
            except LumberjackError:
                # The sender has failed. What became of its records is unknown.
                accepted = 0
        self._unsent = self._queued - accepted

    def _report(self) -> None:
        if self.dropped and sys.stderr is not None:
            records = "1 log record was" if self.dropped == 1 else f"{self.dropped} log records were"
            with suppress(OSError, ValueError):
                sys.stderr.write(f"penstock: {records} dropped\n")


def _sender_to(address: str) -> Sender:
    try:
        checked = check_address(address)
    except ValueError as error:
        raise LumberjackError(f"the address of the receiver {error}", "misuse") from None
    return Sender(checked)


def _as_it_is(value: object) -> object:
    """Return a copy of a value as JSON has it, because the program may change it before it is sent."""
    if value is None or isinstance(value, str | int | float):
        return value
    try:
        return json.loads(json_text(value))
    except ValueError:
        return repr(value)
