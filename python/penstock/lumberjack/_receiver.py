"""Receivers: batches of events, acknowledged when the application has taken them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NoReturn

import pyarrow as pa

from penstock import _core
from penstock._listening import Listening
from penstock._state import certificate_folder
from penstock.lumberjack._event import Event, events_of
from penstock.lumberjack._options import Limits, PathLike, ReceiveOptions, needs_tls
from penstock.lumberjack._spool import Spool

__all__ = ["Batch", "Receiver", "ReceiverCounters"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Batch:
    """Events of one connection, in their order: a window, or a part of one.

    The writer hears of it when you call `ack`. A batch that is dropped without it is not acknowledged: its connection
    ends, and the writer sends the events again.
    """

    __slots__ = ("_native",)

    def __init__(self, native: "_core.LumberjackBatch") -> None:
        """Wrap what the core gave."""
        self._native = native

    @property
    def record_batch(self) -> pa.RecordBatch:
        """The events, a row for each; docs/protocols/lumberjack.md lists the columns."""
        return self._native.record_batch()

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """Give the events to whatever takes Arrow."""
        capsules: tuple[object, object] = self.record_batch.__arrow_c_array__(requested_schema)
        return capsules

    @property
    def peer(self) -> str:
        """The writer's address, ``IP:PORT``."""
        return self._native.peer()

    @property
    def identity(self) -> str | None:
        """The name in the writer's certificate; None without one."""
        return self._native.identity()

    @property
    def received(self) -> datetime:
        """When the last of the events had come, in UTC."""
        return _EPOCH + timedelta(microseconds=self._native.received())

    @property
    def acked(self) -> bool:
        """Whether it was acknowledged."""
        return self._native.is_acked()

    def ack(self) -> None:
        """Say that the events are safe. Again changes nothing."""
        self._native.ack()

    def events(self) -> Iterator[Event]:
        """Give the events one by one, from the raw columns. For many, columns are much faster."""
        yield from events_of(self.record_batch.to_pydict())

    def __len__(self) -> int:
        """Count the events."""
        return self._native.num_rows()

    def __reduce__(self) -> NoReturn:
        """Refuse a pickle."""
        raise TypeError("a Batch is acknowledged where it came in; pickle its record_batch")

    def __repr__(self) -> str:
        """Say what it is."""
        return f"<Batch of {len(self)} events from {self.peer}{', acknowledged' if self.acked else ''}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverCounters:
    """What a receiver has seen since it began to listen: `Receiver.counters`."""

    connections: int
    """Connections that were taken."""
    open: int
    """Connections that are open."""
    refused: int
    """Connections that were closed at once: too many were open, in all or of their address, or descriptors ran out."""
    handshakes_failed: int
    """TLS handshakes that failed."""
    events: int
    """Events that came."""
    bytes: int
    """Bytes of these events."""
    wire_bytes: int
    """Bytes that came, as they came: compressed."""
    windows: int
    """Windows that came whole."""
    acknowledged: int
    """Events that were acknowledged."""
    held_bytes: int
    """Bytes of what is not safe yet."""
    errors: Mapping[str, int]
    """Connections that ended with an error, by its kind."""
    foreign: Mapping[str, int]
    """Connections of those that spoke something else (decision 11), by its name."""
    peers: Mapping[str, tuple[int, int]]
    """Events and bytes by the name in the certificate, or by address. The first 256, then "other"."""


class Receiver(Listening):
    """A Lumberjack receiver, which listens as soon as it is made. Iterating it gives batches.

    As a context manager it closes at the end. What was acknowledged by `Batch.ack` is told to the writers first.

    Args:
        listen: ``HOST:PORT``; port 0 picks a free one.
        tls: Whether with TLS; by default yes, unless on loopback without a certificate (decision 10).
        cert: The certificate (PEM), with ``key``; without, one for localhost is made once and kept. The files are
            looked at every 5 seconds: new connections get what they hold, open ones keep theirs.
        key: Its private key (PEM).
        client_ca: A PEM file: clients show a certificate that it has signed.
        client_certificates: Whether those without one are refused, "required", or anonymous, "optional".
        schema: A pyarrow schema, or whatever gives one by ``__arrow_c_schema__``: JSON is parsed into its columns.
            By default the raw ones.
        spool: A `Spool`, or a folder, or a URI of an object store: events are kept there, acknowledged when they are
            durable, and read from there with `SpoolReader`; there are no batches then.
        max_connections: Connections beyond these are closed at once. Where the system has fewer descriptors the
            receiver takes fewer, and says so in the log.
        max_connections_per_address: Connections of one address beyond these are closed at once, an IPv6 address
            standing for its /64; by default seven eighths of ``max_connections``, or 64 where that is more.
        max_bytes: Bytes of what is not acknowledged, of all connections together; who would send more waits.
        max_age: Seconds after which a connection ends at its window's edge; by default never.
        frame_timeout: Seconds that a frame may take to arrive.
        idle_timeout: Seconds that a writer may be silent between frames; None: for ever. The first byte must come
            within 10 seconds of the connection, the handshake included.
        keepalive: Seconds after which a writer of version 2 that waits for an acknowledgement is told to wait on.
        repeat_ack: Whether writers of version 1 get their last acknowledgement again instead, where their numbers
            go on.
        pause: Seconds of silence within a window, after which what came of it is given and acknowledged.
        limits: What writers may ask for.
        metrics: ``HOST:PORT`` of ``/metrics`` for Prometheus and ``/healthz``, over HTTP. By default nowhere.
        state_dir: For development certificates; by default the state folder of the command line.

    >>> from penstock.lumberjack import Sender
    >>> with Receiver() as receiver, Sender(receiver.address) as sender:
    ...     sender.send([{"message": "hello"}, {"message": "world"}], wait=False)
    ...     batch = next(iter(receiver))
    ...     print([event.content["message"] for event in batch.events()])
    ...     batch.ack()
    ['hello', 'world']
    """

    __slots__ = ("_fingerprint", "_native")

    _native: "_core.LumberjackReceiver"

    def __init__(
        self,
        listen: str = "127.0.0.1:0",
        *,
        tls: bool | None = None,
        cert: PathLike | None = None,
        key: PathLike | None = None,
        client_ca: PathLike | None = None,
        client_certificates: Literal["required", "optional"] = "required",
        schema: object = None,
        spool: "PathLike | Spool | None" = None,
        max_connections: int = 16_384,
        max_connections_per_address: int | None = None,
        max_bytes: int = 256 << 20,
        max_age: float | None = None,
        frame_timeout: float = 30.0,
        idle_timeout: float | None = 900.0,
        keepalive: float = 3.0,
        repeat_ack: bool = False,
        pause: float = 1.0,
        limits: Limits | None = None,
        metrics: str | None = None,
        state_dir: PathLike | None = None,
    ) -> None:
        """Begin to listen; the class says what the arguments are.

        Raises:
            LumberjackError: Of kind "io" for an address or a file, "misuse" for options that do not fit.
        """
        options = receive_options(
            listen,
            tls=tls,
            cert=cert,
            key=key,
            client_ca=client_ca,
            client_certificates=client_certificates,
            max_connections=max_connections,
            max_connections_per_address=max_connections_per_address,
            max_bytes=max_bytes,
            max_age=max_age,
            frame_timeout=frame_timeout,
            idle_timeout=idle_timeout,
            keepalive=keepalive,
            repeat_ack=repeat_ack,
            pause=pause,
            limits=limits,
            metrics=metrics,
            state_dir=state_dir,
        )
        self._native = _core.LumberjackReceiver(
            listen, options, schema, spool.core if isinstance(spool, Spool) else spool
        )
        self._listens()
        self._fingerprint = self._native.fingerprint()

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of its first certificate, ``sha256:HEX``; None without TLS."""
        return self._fingerprint

    @property
    def counters(self) -> ReceiverCounters:
        """What it has seen so far."""
        return counters_of(self._native.counters())

    def receive(self, timeout: float | None = None) -> Batch | None:
        """Wait for the next batch, at most ``timeout`` seconds; None when the receiver is closed.

        Raises:
            LumberjackError: Of kind "deadline" when the time is over.
        """
        native = self._native.next_batch(timeout)
        return None if native is None else Batch(native)

    def __iter__(self) -> Iterator[Batch]:
        """Give batches until the receiver is closed."""
        while (batch := self.receive()) is not None:
            yield batch

    def reload(self) -> bool:
        """Read the certificate again if its files have changed; say whether they had.

        Raises:
            LumberjackError: Where they cannot be read; the old one stays.
        """
        return self._native.reload()


def receive_options(
    listen: str,
    *,
    tls: bool | None,
    cert: PathLike | None,
    client_ca: PathLike | None,
    limits: Limits | None,
    state_dir: PathLike | None,
    **others: Any,
) -> ReceiveOptions:
    """Make what the core is told of what a caller said."""
    return ReceiveOptions(
        tls=needs_tls(listen, tls, cert, client_ca),
        cert=cert,
        client_ca=client_ca,
        limits=limits or Limits(),
        development=certificate_folder(state_dir),
        **others,
    )


def counters_of(fields: "_core._ReceiverCounterFields") -> ReceiverCounters:
    """Make the dataclass from what the core gave."""
    plain: dict[str, Any] = dict(fields)
    return ReceiverCounters(
        **plain
        | {
            "errors": dict(fields["errors"]),
            "foreign": dict(fields["foreign"]),
            "peers": {name: (events, size) for name, events, size in fields["peers"]},
        }
    )
