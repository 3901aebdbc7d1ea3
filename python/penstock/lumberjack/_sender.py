"""Senders: events to one of several receivers, kept until they are acknowledged."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from time import monotonic
from types import TracebackType
from typing import Literal, NoReturn, Self

import pyarrow as pa

from penstock import _core
from penstock.errors import LumberjackError
from penstock.lumberjack._event import check_size, json_bytes, pair_bytes, rows_of, timestamp
from penstock.lumberjack._options import PathLike, SendOptions, host_list

__all__ = ["Sender"]

# Events that are encoded before they are given to the core.
_PART = 2_048
_NULL_EVENT = '{"event":null}'


class Sender:
    """Sends events to Lumberjack receivers: penstock, Logstash, go-lumber, whatever speaks it.

    It connects when there is something to send. What is not acknowledged is sent again, in order, over the next
    connection: at least once. As a context manager it waits at the end until everything is acknowledged.

    Args:
        hosts: ``HOST:PORT`` of the receiver, or several.
        balance: Use all hosts, each by a connection of its own. By default one, and the next where it fails.
        fingerprint: Trust the receiver whose certificate has this SHA-256.
        ca: Trust receivers that this CA (PEM) has signed.
        system_ca: Trust what the system trusts. Without any of these it is plain, which is for this machine only.
        cert: Our own certificate (PEM), with ``key``.
        key: Its private key (PEM).
        server_name: The name that the certificate must be for; by default the host.
        plain: Send in plain text to other machines too.
        frames: "json": J frames. "map": D frames, pairs of strings.
        protocol: The version of the frames.
        sequence: Numbers from 1 in every "window", or "continue" over windows and connections (decision 4).
        window: Events of a window, at most.
        in_flight: Windows on their way, at most, on each connection.
        compress: zlib's level, 0 for none.
        ack_timeout: Seconds that a receiver may be silent while windows are on their way; then another is tried.
        retry: Seconds to try while nothing is acknowledged; then sending fails. By default for ever.

    >>> from penstock.lumberjack import Receiver
    >>> with Receiver() as receiver:
    ...     with Sender([receiver.address], window=50) as sender:
    ...         sender.send(({"n": number} for number in range(3)), wait=False)
    ...         for batch in receiver:
    ...             batch.ack()
    ...             if len(batch) == 3:
    ...                 break
    ...     sender.acknowledged
    3
    """

    __slots__ = ("_frames", "_native")

    def __init__(
        self,
        hosts: str | Sequence[str],
        *,
        balance: bool = False,
        fingerprint: str | None = None,
        ca: PathLike | None = None,
        system_ca: bool = False,
        cert: PathLike | None = None,
        key: PathLike | None = None,
        server_name: str | None = None,
        plain: bool = False,
        frames: Literal["json", "map"] = "json",
        protocol: Literal[1, 2] = 1,
        sequence: Literal["window", "continue"] = "window",
        window: int = 2_048,
        in_flight: int = 2,
        compress: int = 3,
        ack_timeout: float = 30.0,
        retry: float | None = None,
    ) -> None:
        """Read the trust; the class says what the arguments are. Nothing is connected yet.

        Raises:
            LumberjackError: Of kind "misuse" for options that do not fit, "io" for files.
        """
        options = SendOptions(
            hosts=host_list(hosts),
            balance=balance,
            fingerprint=fingerprint,
            ca=ca,
            system_ca=system_ca,
            cert=cert,
            key=key,
            server_name=server_name,
            plain=plain,
            protocol=protocol,
            sequence=sequence,
            window=window,
            in_flight=in_flight,
            compress=compress,
            ack_timeout=ack_timeout,
            retry=retry,
        )
        self._frames = check_frames(frames)
        self._native = _core.LumberjackSender(options.check())

    def send(self, events: Iterable[object], *, wait: bool = True, timeout: float | None = None) -> None:
        """Send events.

        Args:
            events: Mappings, which become JSON objects or pairs; strings, which become a message; bytes, JSON as it is;
                `Event`. Or a batch or table in Arrow: its column "event", strings of JSON, where null becomes
                ``{"event":null}``, or each row as an object. NaN and infinities become the strings "NaN", "Infinity"
                and "-Infinity", what JSON has nothing for its ``str``.
                2,048 are taken at a time, so a generator may give more than there is memory for.
            wait: Whether to return when all of them are acknowledged. If not, it returns when there was room for them,
                and `flush` waits.
            timeout: Seconds, after which it is open how many of them are sent. By default for ever.

        Raises:
            LumberjackError: Of kind "deadline" when the time is over; "limit" for an event that no receiver would take,
                16 MiB of JSON or of a value, 64 KiB of a key, 65,536 pairs, 64 MiB of all pairs, and "misuse" for one
                that is no JSON: none of the 2,048 that were taken with it is sent; another when it has tried for
                ``retry`` seconds.
        """
        if hasattr(events, "__arrow_c_array__") or hasattr(events, "__arrow_c_stream__"):
            for batch in batches_of(events):
                if self._frames == "json" and "event" in batch.schema.names:
                    self._native.send_column(event_column(batch), "event", False, timeout)
                else:
                    self._send(rows_of(batch), timeout)
        else:
            self._send(events, timeout)
        if wait:
            self.flush(timeout)

    def _send(self, events: Iterable[object], timeout: float | None) -> None:
        ends = None if timeout is None else monotonic() + timeout
        for part in parts_of(events):
            left = None if ends is None else max(0.0, ends - monotonic())
            if self._frames == "json":
                self._native.send_json(bytes_of(part), False, left)
            else:
                self._native.send_maps([pair_bytes(event) for event in part], False, left)

    def send_lines(
        self,
        text: bytes,
        *,
        host: str,
        path: str | None = None,
        offset: int = 0,
        time: datetime | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> int | None:
        """Send the lines of a text, as ``penstock lumberjack send`` does; it does not wait for the acknowledgements.

        A line that is a JSON object is sent as it is, any other as the message of one. Empty lines are left out. A line
        that is longer than a receiver takes (16 MiB of JSON) is for the caller to divide.

        Args:
            text: Whole lines.
            host: The name of this machine.
            path: The file that they are of.
            offset: Where in the file they begin.
            time: When they were read, with its zone; by default now. It is their ``@timestamp``.
            stop: Asked now and then while there is no room; true gives up.

        Returns:
            How many events were given since the beginning; None where it gave up, and it is open how many were sent.
        """
        read = timestamp(time or datetime.now(UTC))
        return self._native.send_lines(text, self._frames == "map", read, host, path, offset, stop)

    @property
    def acknowledged(self) -> int:
        """How many events are acknowledged, in the order in which they were given, without a gap."""
        return self._native.acknowledged()

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything that was given is acknowledged, at most ``timeout`` seconds.

        Raises:
            LumberjackError: As for `send`.
        """
        self._native.flush(None, timeout)

    def try_flush(self, timeout: float) -> bool:
        """Wait as `flush` does; say whether everything is acknowledged."""
        try:
            self.flush(timeout)
        except LumberjackError as error:
            if error.kind != "deadline" or self._native.has_failed():
                raise
            return False
        return True

    def abandon(self) -> None:
        """End now, whatever is not acknowledged."""
        self._native.abandon()

    def close(self, grace: float = 30.0) -> None:
        """Take no more events, wait ``grace`` seconds for the acknowledgements, and end.

        Raises:
            LumberjackError: Of kind "deadline" where some are missing.
        """
        self._native.close(grace)

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close; where an exception came, at once, and without another one."""
        if kind is None:
            self.close()
        else:
            self._native.abandon()

    def __reduce__(self) -> NoReturn:
        """Refuse a pickle."""
        raise TypeError("a Sender is a live connection and cannot be pickled")

    def __repr__(self) -> str:
        """Say what it is."""
        return f"<Sender of {self._frames} frames>"


def check_frames(frames: str) -> str:
    """Refuse what is no kind of frames."""
    if frames not in {"json", "map"}:
        raise ValueError(f'frames must be "json" or "map", not {frames!r}')
    return frames


def parts_of(events: Iterable[object]) -> Iterator[list[object]]:
    """Take events a few at a time: the first are on their way while the next are encoded, and a generator may go on."""
    rest = iter(events)
    while part := list(islice(rest, _PART)):
        yield part


def bytes_of(part: list[object]) -> list[bytes]:
    """Give events as J frames have them; those that are JSON already are most, where there are many."""
    return [event if type(event) is bytes else json_bytes(event) for event in part]


def event_column(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Give the column of JSON alone, none of it too large; where it is null, there is an object that says so."""
    import pyarrow.compute as pc  # it takes longer than all else here, and most senders have no batches

    column = batch.column("event")
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    if text or pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        # A scalar imports pandas, where it is installed.
        if column.null_count:
            column = pc.fill_null(column, pa.scalar(_NULL_EVENT if text else _NULL_EVENT.encode(), column.type))
        check_size("an event", pc.max(pc.binary_length(column)).as_py() or 0)
    return pa.record_batch({"event": column})


def batches_of(events: object) -> Iterable[pa.RecordBatch]:
    """Give the batches of whatever has columns."""
    if hasattr(events, "__arrow_c_array__"):
        return [pa.record_batch(events)]
    reader: Iterable[pa.RecordBatch] = pa.RecordBatchReader.from_stream(events)
    return reader
