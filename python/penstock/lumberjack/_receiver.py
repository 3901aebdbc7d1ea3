"""Receivers of events, in batches that the application acknowledges."""

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
    """Consecutive events of one connection: a window, or a part of one.

    Call `ack` to acknowledge the events to the writer. If a batch is dropped without it, its connection ends, and the
    writer sends the events again.
    """

    __slots__ = ("_native",)

    def __init__(self, native: "_core.LumberjackBatch") -> None:
        """Batches come from a `Receiver`; do not make them."""
        self._native = native

    @property
    def record_batch(self) -> pa.RecordBatch:
        """The events, one row each, with the columns of the receiver's schema, by default of `EVENT_SCHEMA`."""
        return self._native.record_batch()

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """Export the events through the Arrow C data interface."""
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
        """The UTC time at which the last of the events arrived."""
        return _EPOCH + timedelta(microseconds=self._native.received())

    @property
    def acked(self) -> bool:
        """Whether the batch was acknowledged."""
        return self._native.is_acked()

    def ack(self) -> None:
        """Acknowledge the events, once they are stored safely; a second call changes nothing."""
        self._native.ack()

    def events(self) -> Iterator[Event]:
        """Yield the events one by one; `record_batch` is much faster for many. Needs a receiver without a schema."""
        yield from events_of(self.record_batch.to_pydict())

    def __len__(self) -> int:
        """Return the number of events."""
        return self._native.num_rows()

    def __reduce__(self) -> NoReturn:
        """Not picklable: it can be acknowledged only in the process that received it."""
        raise TypeError("a Batch is acknowledged in the process that received it; pickle its record_batch")

    def __repr__(self) -> str:
        """Return the number of events, the peer and whether the batch is acknowledged."""
        return f"<Batch of {len(self)} events from {self.peer}{', acknowledged' if self.acked else ''}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverCounters:
    """The counters of a receiver since it started to listen: `Receiver.counters`."""

    connections: int
    """Connections that were accepted."""
    open: int
    """Connections that are open."""
    refused: int
    """Connections that were closed at once: too many were open, in all or of their address, or descriptors ran out."""
    handshakes_failed: int
    """TLS handshakes that failed."""
    events: int
    """Events that were received."""
    bytes: int
    """Bytes of these events."""
    wire_bytes: int
    """Bytes that were received, before decompression."""
    windows: int
    """Windows that were received completely."""
    acknowledged: int
    """Events that were acknowledged."""
    held_bytes: int
    """Bytes in memory that are not durable yet."""
    errors: Mapping[str, int]
    """Connections that ended with an error, by its kind."""
    foreign: Mapping[str, int]
    """Connections that spoke another protocol, such as HTTP, by its name."""
    peers: Mapping[str, tuple[int, int]]
    """Events and bytes by the name in the writer's certificate, or by its address: the first 256, then "other"."""


class Receiver(Listening):
    """A Lumberjack receiver, which listens as soon as it is made. Iterating over it yields batches.

    As a context manager it closes at the end, after it has sent the acknowledgements of `Batch.ack` to the writers.

    Args:
        listen: ``HOST:PORT`` to listen on; port 0 picks a free one.
        tls: Whether to use TLS; by default yes, except on loopback without a certificate.
        cert: The certificate (PEM file), with ``key``; by default one for localhost is made once and kept. The files
            are checked every 5 seconds: new connections get a changed certificate, open ones keep theirs.
        key: The certificate's private key (PEM file).
        client_ca: A CA (PEM file) that must have signed the certificates of writers. By default writers need none.
        client_certificates: Whether writers without a certificate are rejected ("required") or anonymous ("optional").
        schema: A pyarrow schema, or an object with ``__arrow_c_schema__``, into whose columns JSON is parsed. By
            default the columns are those of `EVENT_SCHEMA`.
        spool: A `Spool`, a folder, or a URI in an object store, in which events are stored; they are acknowledged once
            they are durable, and read with `SpoolReader`. Then the receiver yields no batches.
        max_connections: The most connections; further ones are closed at once. If the system allows fewer file
            descriptors, the receiver accepts fewer connections and logs that.
        max_connections_per_address: The most connections from one address, where an IPv6 address stands for its /64;
            further ones are closed at once. By default seven eighths of ``max_connections``, or 64 if that is more.
        max_bytes: The most bytes of unacknowledged events, of all connections together, by default 256 MiB; beyond it
            writers wait.
        max_age: Seconds after which a connection is closed at the end of a window; by default never.
        frame_timeout: Seconds that a frame may take to arrive.
        idle_timeout: Seconds that a writer may be silent between frames; None: indefinitely. The first byte must arrive
            within 10 seconds of the connection, including the handshake.
        keepalive: Seconds between the keepalives for a version 2 writer that waits for an acknowledgement.
        repeat_ack: Whether writers of version 1, which has no keepalives, get their last acknowledgement again instead,
            if they do not restart their sequence numbers.
        pause: Seconds of silence within a window after which its events so far are delivered and acknowledged.
        limits: The limits for frames and events of writers.
        metrics: ``HOST:PORT`` on which ``/metrics`` for Prometheus and ``/healthz`` are served over HTTP. By default
            they are not served.
        state_dir: The folder of the development certificate; by default the state folder of the command line.

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
        """Start to listen; the class describes the arguments.

        Raises:
            LumberjackError: Of kind "io" if an address or a file fails, "misuse" for invalid options.
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
        """The fingerprint of the first certificate, ``sha256:HEX``; None without TLS."""
        return self._fingerprint

    @property
    def counters(self) -> ReceiverCounters:
        """The current counters."""
        return counters_of(self._native.counters())

    def receive(self, timeout: float | None = None) -> Batch | None:
        """Wait for the next batch; return None if the receiver is closed.

        Args:
            timeout: Seconds to wait; by default indefinitely.

        Raises:
            LumberjackError: Of kind "deadline" after the timeout, "misuse" if the receiver has a spool.
        """
        native = self._native.next_batch(timeout)
        return None if native is None else Batch(native)

    def __iter__(self) -> Iterator[Batch]:
        """Yield batches until the receiver is closed."""
        while (batch := self.receive()) is not None:
            yield batch

    def reload(self) -> bool:
        """Read the certificate again if its files have changed; return whether they had.

        Raises:
            LumberjackError: If they cannot be read; the receiver keeps its certificate.
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
    """Return the core's options for a caller's arguments."""
    return ReceiveOptions(
        tls=needs_tls(listen, tls, cert, client_ca),
        cert=cert,
        client_ca=client_ca,
        limits=limits or Limits(),
        development=certificate_folder(state_dir),
        **others,
    )


def counters_of(fields: "_core._ReceiverCounterFields") -> ReceiverCounters:
    """Return the dataclass for the core's counters."""
    plain: dict[str, Any] = dict(fields)
    return ReceiverCounters(
        **plain
        | {
            "errors": dict(fields["errors"]),
            "foreign": dict(fields["foreign"]),
            "peers": {name: (events, size) for name, events, size in fields["peers"]},
        }
    )
