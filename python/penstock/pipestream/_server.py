"""Servers: into a folder, or into the application."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from penstock import _core
from penstock._listening import Listening
from penstock._pipestream_limits import Limits
from penstock._places import is_uri, local_path
from penstock._state import state_dir
from penstock.pipestream._codes import Status
from penstock.pipestream._fields import PathLike
from penstock.pipestream._hand_over import HandOver, Queue
from penstock.pipestream._keys import misuse
from penstock.pipestream._messages import ClaimCheck, SetAside, claim_id, set_aside_of
from penstock.pipestream._references import References
from penstock.pipestream._session import Session

__all__ = ["Server", "ServerCounters"]

LAYER_2 = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What `Server` tells the core."""

    sink: PathLike | None
    storage: Mapping[str, str]
    cert: PathLike | None
    key: PathLike | None
    development: PathLike
    client_ca: PathLike | None
    layers: int
    window: int | None
    mtu: int | None
    max_payload: int | None
    events: PathLike | None
    read_key: str | None
    reader_certificates: str
    metrics: str | None
    references: References | None
    claims: PathLike | None
    defer_types: list[str]
    max_connections_per_address: int | None
    idle_timeout: float | None
    survive: float | None
    state: PathLike | None
    limits: Limits
    header_key: str | None = field(repr=False)
    status_interval: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCounters:
    """What a server has seen since it began to listen: `Server.counters`."""

    connections_total: int
    """Connections that were accepted."""
    connections_open: int
    """Connections that are open."""
    refused: int
    """Connections that were refused, because too many were open."""
    entities: int
    """Entities whose payload came whole and whose checksum held."""
    completed: int
    """Entities that became COMPLETE."""
    failed: int
    """Entities that became FAILED."""
    bytes: int
    """Bytes of the payloads of ``entities``."""
    failures: Mapping[int, int]
    """Failures of entities and connections by error code (section 11.4)."""
    events_lost: int
    """Events that nobody took in time."""
    retries: int = 0
    """Attempts that failed and were not the last."""
    deferred: int = 0
    """Entities that became DEFERRED."""
    skipped: int = 0
    """Entities that became SKIPPED."""
    abandoned: int = 0
    """Entities that became ABANDONED; ``failed`` counts them too."""
    yields: int = 0
    """How often an entity has waited."""
    reconnects: int = 0
    """Connections that sessions went on over, when another one was lost."""
    claims: int = 0
    """Claim checks that are known now."""
    limits: Mapping[str, int]
    """How often each limit was exceeded, by its name; docs/operations.md lists them."""


class Server(Listening):
    """A PipeStream server, which listens as soon as it is made.

    With ``sink`` it writes each entity's payload into that folder or object store, once its checksum holds and never
    before. Without, iterating it gives a `Session` for each client, whose entities the application takes.

    As a context manager it closes at the end: sessions that are open may go on for 10 seconds.

    Args:
        listen: ``HOST:PORT``; port 0 picks a free one.
        sink: A folder, made if need be, or a URI of s3, gs or abfs, ``s3://bucket/prefix``: payloads as
            ``SESSION/SCOPE/ENTITY``, and ``SESSION/entities.jsonl`` with a line for each entity.
        storage: Options of the store, ``{"endpoint": URL}``; by default the environment says it all.
        cert: The server's certificate (PEM), with ``key``; without, one for localhost is made once and kept.
        key: Its private key (PEM).
        client_ca: A PEM file: clients must show a certificate that it has signed.
        layers: The highest layer, 0 to 2.
        window: The most entities of a scope that may be unresolved, by default 65,536.
        mtu: The largest UDP payload that is tried on the path to a client, in bytes from 1,200 to 9,000; by
            default 6,500 where the client is on this machine, else 1,452.
        max_payload: The largest payload in bytes, by default 16 GiB. A larger one fails its entity.
        events: A file to which every event is appended as a line of JSON.
        read_key: A text of at least 16 bytes, for those who may read the sink (`SinkReader.connect`).
        reader_certificates: With ``client_ca``: whether readers must have such a certificate, too, "required", or
            come with the key alone, "optional".
        defer_types: Content types, ``image/png`` or ``image/*``: entities of these are set aside as soon as they have
            arrived, under a claim check, for somebody who has time. For a server with a sink.
        defer_to: ``quicx://HOST:PORT``, a Quicx daemon: every claim check is submitted to it as a task of the type
            ``pipestream.claim`` with a JSON object (`SetAside.to_dict`); the task's end settles the claim check,
            COMPLETE or FAILED. The daemon is on this machine, or trusted by ``?fingerprint=HEX`` or ``?ca=FILE`` behind
            the address (``cert=FILE&key=FILE`` too).
        max_connections_per_address: Connections of one address beyond these are refused, an IPv6 address standing for
            its /64; by default seven eighths of all.
        idle_timeout: Seconds without a frame after which a session in which nothing is open is closed; 0: never.
        survive: Seconds that a session waits for its client when their connection is lost, where that client goes on;
            0: it ends. Only at layer 2.
        state: A folder for such sessions, made if need be, so that they outlive this process too: nothing that was
            acknowledged is lost, and the next server on the same folders goes on with them. The sink is a folder then.
        status_interval: Seconds, 0.001 to 10: stream 0 of every connection is then written to once in this time,
            always 1,152 bytes, so that its timing and sizes tell nothing of what is processed (section 10.6). By
            default, at once.
        claims: A folder for claim checks. By default they are in the sink, ``SINK/.claims``, in a folder as in a
            store, whose servers share them. With neither sink nor folder nothing is set aside (`ReceivedEntity.defer`
            is a misuse), because what is forgotten with the process could be redeemed twice.
        metrics: ``HOST:PORT`` of ``/metrics`` for Prometheus and ``/healthz``, over HTTP. By default nowhere.
        references: What becomes of entities that refer to objects in stores; by default their messages are kept.
        limits: What clients may make it do; by default what the specification allows.
        header_key: Take headers only whose metadata and content type are sealed with this key of 64 hex digits, and
            seal those of results with it; clients have it as well. More lines are earlier keys, which only open.
        state_dir: For development certificates; by default the state folder of the command line.

    >>> from tempfile import TemporaryDirectory
    >>> from threading import Thread
    >>> def client(address, fingerprint):
    ...     with Session.connect(address, fingerprint=fingerprint) as session:
    ...         session.send(b"hello")
    >>> with TemporaryDirectory() as folder, Server(state_dir=folder) as server:
    ...     Thread(target=client, args=(server.address, server.fingerprint)).start()
    ...     with server.accept() as session:
    ...         for entity in session:
    ...             print(entity, entity.read())
    ...             entity.complete()
    ReceivedEntity(scope_id=0, entity_id=1) b'hello'
    """

    __slots__ = ("_fingerprint", "_hand_over", "_native")

    _native: "_core.Server"

    def __init__(
        self,
        listen: str = "127.0.0.1:0",
        *,
        sink: PathLike | None = None,
        storage: Mapping[str, str] | None = None,
        cert: PathLike | None = None,
        key: PathLike | None = None,
        client_ca: PathLike | None = None,
        layers: int = 2,
        window: int | None = None,
        mtu: int | None = None,
        max_payload: int | None = None,
        events: PathLike | None = None,
        read_key: str | None = None,
        reader_certificates: Literal["required", "optional"] = "required",
        defer_types: Sequence[str] = (),
        defer_to: str | None = None,
        claims: PathLike | None = None,
        max_connections_per_address: int | None = None,
        idle_timeout: float = 900.0,
        survive: float = 300.0,
        state: PathLike | None = None,
        status_interval: float | None = None,
        metrics: str | None = None,
        references: References | None = None,
        limits: Limits | None = None,
        header_key: str | None = None,
        state_dir: PathLike | None = None,
    ) -> None:
        """Begin to listen; the class says what the arguments are.

        Raises:
            PipeStreamError: Of kind "io" for an address, a file or a store, "misuse" for options that do not fit.
        """
        options = ServeOptions(
            sink=sink_of(sink),
            storage=dict(storage or {}),
            cert=cert,
            key=key,
            development=development(state_dir),
            client_ca=client_ca,
            layers=layers,
            window=window,
            mtu=mtu,
            max_payload=max_payload,
            events=events,
            read_key=read_key,
            reader_certificates=reader_certificates,
            metrics=metrics,
            references=references,
            claims=claims,
            defer_types=list(defer_types),
            max_connections_per_address=max_connections_per_address,
            idle_timeout=idle_timeout,
            survive=survive if layers == LAYER_2 else None,
            state=state,
            limits=limits or Limits(),
            header_key=header_key,
            status_interval=status_interval,
        )
        check_defer_to(defer_to, sink, claims)
        queue = None if defer_to is None else Queue.parse(defer_to)
        self._native = _core.Server(listen, options)
        self._listens()
        self._fingerprint = self._native.fingerprint()
        self._hand_over = None if queue is None else HandOver(self._native, queue)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of its certificate, ``sha256:HEX``: what clients pin."""
        return self._fingerprint

    @property
    def counters(self) -> ServerCounters:
        """What it has seen so far."""
        return counters_of(self._native.counters())

    def claims(self) -> list[SetAside]:
        """Give what this server has set aside and still knows, the first to expire at the front."""
        return [set_aside_of(row) for row in self._native.claims()]

    def settle(self, claim: ClaimCheck | int | str, status: Status = Status.COMPLETE) -> None:
        """Say what has become of an entity that was set aside, instead of a session that redeems it. It is stored.

        Raises:
            PipeStreamError: CLAIM_NOT_FOUND where it is not known, or a session has redeemed it, CLAIM_EXPIRED; of kind
                "misuse" for a status that is not COMPLETE, FAILED, SKIPPED or ABANDONED.
        """
        self._native.settle(claim_id(claim), status)

    def close(self, grace: float = 10.0) -> None:
        """Take no more connections, let sessions end for ``grace`` seconds, then cut off what is left.

        Closing a closed server changes nothing.
        """
        super().close(grace)
        if self._hand_over is not None:
            self._hand_over.stop()

    def accept(self, timeout: float | None = None) -> Session | None:
        """Wait for the next client, at most ``timeout`` seconds; None when the server is closed.

        Raises:
            PipeStreamError: Of kind "deadline" when the time is over; a misuse where the server has a sink.
        """
        native = self._native.next_session(timeout)
        return None if native is None else Session(native)

    def __iter__(self) -> Iterator[Session]:
        """Give a session for each client until the server is closed."""
        while (session := self.accept()) is not None:
            yield session


def check_defer_to(defer_to: str | None, sink: PathLike | None, claims: PathLike | None) -> None:
    """Refuse a queue for claim checks that there are none of."""
    if defer_to is not None and sink is None and claims is None:
        raise misuse("defer_to needs claim checks, and those are kept in a sink, or in the folder that claims= names")


def sink_of(sink: PathLike | None) -> PathLike | None:
    """Give the folder, or the URI of a store."""
    try:
        return sink if sink is None or is_uri(os.fspath(sink)) else local_path(os.fspath(sink))
    except ValueError:
        # The core says which ones there are.
        return sink


def counters_of(fields: "_core._CounterFields") -> ServerCounters:
    """Make the dataclass from what the core gave."""
    return ServerCounters(
        connections_total=fields["connections_total"],
        connections_open=fields["connections_open"],
        refused=fields["refused"],
        entities=fields["entities"],
        completed=fields["completed"],
        failed=fields["failed"],
        bytes=fields["bytes"],
        failures=dict(fields["failures"]),
        events_lost=fields["events_lost"],
        retries=fields["retries"],
        deferred=fields["deferred"],
        skipped=fields["skipped"],
        abandoned=fields["abandoned"],
        yields=fields["yields"],
        reconnects=fields["reconnects"],
        claims=fields["claims"],
        limits=dict(fields["limits"]),
    )


def development(folder: PathLike | None) -> Path:
    """Name the folder of the development certificate."""
    return (state_dir() if folder is None else Path(folder)) / "certificate"
