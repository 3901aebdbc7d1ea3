"""Senders of events, which keep them until a receiver has acknowledged them."""

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

# Events that are encoded at once, before they are passed to the core.
_PART = 2_048
_NULL_EVENT = '{"event":null}'


class Sender:
    """A sender of events to Lumberjack receivers, such as penstock, Logstash or go-lumber.

    It connects when there are events to send. Events that are not acknowledged are sent again, in order, over the next
    connection: delivery is at least once. As a context manager it waits at the end until everything is acknowledged.

    Args:
        hosts: ``HOST:PORT`` of the receiver, or a sequence of them.
        balance: Whether to use all hosts, with a connection to each. By default one host is used, and the next one if
            it fails.
        fingerprint: Trust the receiver whose certificate has this SHA-256, in hex.
        ca: Trust receivers whose certificate is signed by this CA (PEM file).
        system_ca: Trust receivers whose certificate is signed by a CA of the system's store. Without any of these three
            there is no TLS, which is allowed only for receivers on this machine.
        cert: The sender's certificate (PEM file), with ``key``.
        key: The certificate's private key (PEM file).
        server_name: The name that the receiver's certificate must have; by default the host.
        plain: Whether to send without TLS to other machines too.
        frames: "json" for J frames, "map" for D frames, which are pairs of strings.
        protocol: The version of the frames, 1 or 2.
        sequence: "window" to number the events of each window from 1, or "continue" to count across windows and
            connections.
        window: The most events of a window.
        in_flight: The most unacknowledged windows of a connection.
        compress: The zlib level, 0 for no compression.
        ack_timeout: Seconds that a receiver may be silent while windows are unacknowledged; then the sender connects
            again, to the next host if there are several.
        retry: Seconds to retry while nothing is acknowledged; then the sender fails. By default it retries
            indefinitely.

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
        """Read the certificates, without connecting; the class describes the arguments.

        Raises:
            LumberjackError: Of kind "misuse" for invalid options, "io" if a file cannot be read.
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
            events: Mappings, which become JSON objects or pairs; strings, which become the message of an event; bytes,
                which are sent unchanged as JSON; or `Event`. Or an Arrow batch or table: with J frames its column
                "event" of JSON strings, where null becomes ``{"event":null}``, otherwise each row as a mapping. NaN and
                the infinities become the strings "NaN", "Infinity" and "-Infinity", other values that JSON lacks their
                ``str``. Events are consumed 2,048 at a time, so a generator may yield more than fit into memory.
            wait: Whether to wait until all events are acknowledged. Otherwise the call returns once they are queued,
                and `flush` waits.
            timeout: Seconds to wait; by default indefinitely. After the timeout it is unknown how many of the events
                are sent.

        Raises:
            LumberjackError: Of kind "deadline" after the timeout; "limit" for an event that receivers do not accept,
                with more than 16 MiB of JSON or of a value, 64 KiB of a key, 65,536 pairs, or 64 MiB of all pairs;
                "misuse" for an event that cannot be written as JSON. In the last two cases none of the 2,048 events
                that were consumed together is sent. Another kind if the sender has failed, after ``retry`` seconds.
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
        """Send lines of text, as ``penstock lumberjack send`` does, without waiting for the acknowledgements.

        A line that is a JSON object is sent unchanged, another one as the message of an object. Empty lines are left
        out. The caller must split lines that are longer than receivers accept (16 MiB of JSON).

        Args:
            text: Whole lines.
            host: The name of this machine.
            path: The file that contains the lines.
            offset: The offset of the first line in the file, in bytes.
            time: The time at which the lines were read, with a time zone; by default now. It is their ``@timestamp``.
            stop: A function that is called about every 0.1 s while the call waits for room; if it returns true, the
                call ends.

        Returns:
            The number of events sent since the sender was made. None if ``stop`` ended the call; then it is unknown how
            many of the lines were sent.
        """
        read = timestamp(time or datetime.now(UTC))
        return self._native.send_lines(text, self._frames == "map", read, host, path, offset, stop)

    @property
    def acknowledged(self) -> int:
        """The number of events that are acknowledged without a gap, in the order in which they were sent."""
        return self._native.acknowledged()

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all events that were sent are acknowledged.

        Args:
            timeout: Seconds to wait; by default indefinitely.

        Raises:
            LumberjackError: As for `send`.
        """
        self._native.flush(None, timeout)

    def try_flush(self, timeout: float) -> bool:
        """Wait as `flush` does; return False after the timeout instead of raising.

        Raises:
            LumberjackError: If the sender has failed.
        """
        try:
            self.flush(timeout)
        except LumberjackError as error:
            if error.kind != "deadline" or self._native.has_failed():
                raise
            return False
        return True

    def abandon(self) -> None:
        """End immediately, even if some events are not acknowledged."""
        self._native.abandon()

    def close(self, grace: float = 30.0) -> None:
        """Accept no more events, wait up to ``grace`` seconds for the acknowledgements, and end.

        Raises:
            LumberjackError: Of kind "deadline" if some are missing.
        """
        self._native.close(grace)

    def __enter__(self) -> Self:
        """Return the sender itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the sender; after an exception, end immediately without raising another one."""
        if kind is None:
            self.close()
        else:
            self._native.abandon()

    def __reduce__(self) -> NoReturn:
        """Not picklable: it is a live connection."""
        raise TypeError("a Sender is a live connection and cannot be pickled")

    def __repr__(self) -> str:
        """Return the kind of frames."""
        return f"<Sender of {self._frames} frames>"


def check_frames(frames: str) -> str:
    """Return the kind of frames; reject an unknown one."""
    if frames not in {"json", "map"}:
        raise ValueError(f'frames must be "json" or "map", not {frames!r}')
    return frames


def parts_of(events: Iterable[object]) -> Iterator[list[object]]:
    """Yield the events in parts, so that the first are sent while the next are still generated and encoded."""
    rest = iter(events)
    while part := list(islice(rest, _PART)):
        yield part


def bytes_of(part: list[object]) -> list[bytes]:
    """Return the events as the bytes of J frames. Large numbers of events are usually bytes already, the fast path."""
    return [event if type(event) is bytes else json_bytes(event) for event in part]


def event_column(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the column of JSON events alone, checked for size, with ``{"event":null}`` for nulls."""
    import pyarrow.compute as pc  # a slow import, which most senders do not need

    column = batch.column("event")
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    if text or pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        # Only if needed, because making a scalar imports pandas if it is installed.
        if column.null_count:
            column = pc.fill_null(column, pa.scalar(_NULL_EVENT if text else _NULL_EVENT.encode(), column.type))
        check_size("an event", pc.max(pc.binary_length(column)).as_py() or 0)
    return pa.record_batch({"event": column})


def batches_of(events: object) -> Iterable[pa.RecordBatch]:
    """Return the batches of an object with an Arrow interface."""
    if hasattr(events, "__arrow_c_array__"):
        return [pa.record_batch(events)]
    reader: Iterable[pa.RecordBatch] = pa.RecordBatchReader.from_stream(events)
    return reader
