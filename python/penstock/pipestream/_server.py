"""Servers, which store entities in a sink or hand them to the application."""

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
    """The options that `Server` passes to the core."""

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
    """The counters of a server since it started to listen: `Server.counters`."""

    connections_total: int
    """Connections that were accepted."""
    connections_open: int
    """Connections that are open."""
    refused: int
    """Connections that were refused because too many were open."""
    entities: int
    """Entities whose payload arrived completely with the right checksum."""
    completed: int
    """Entities that became COMPLETE."""
    failed: int
    """Entities that became FAILED or ABANDONED."""
    bytes: int
    """Bytes of the payloads of ``entities``."""
    failures: Mapping[int, int]
    """Failures of entities and connections by error code (`ErrorCode`)."""
    events_lost: int
    """Events that were dropped because they were not read in time."""
    retries: int = 0
    """Attempts that failed and were not the last one."""
    deferred: int = 0
    """Entities that became DEFERRED."""
    skipped: int = 0
    """Entities that became SKIPPED."""
    abandoned: int = 0
    """Entities that became ABANDONED; ``failed`` counts them too."""
    yields: int = 0
    """How often entities became YIELDED."""
    reconnects: int = 0
    """Connections on which a session continued after it had lost its previous one."""
    claims: int = 0
    """Claim checks that are currently known."""
    limits: Mapping[str, int]
    """How often each limit was exceeded, by its name; docs/operations.md lists the names."""


class Server(Listening):
    """A PipeStream server, which listens as soon as it is made.

    With ``sink`` the server writes the payload of each entity into that folder or object store, after its checksum was
    verified. Without a sink, iterating over the server yields a `Session` for each client, and the application receives
    its entities.

    As a context manager it closes at the end, with 10 seconds for open sessions to end.

    Args:
        listen: ``HOST:PORT`` to listen on; port 0 picks a free one.
        sink: A folder, created if missing, or the URI of a prefix in an object store (s3, gs or abfs), such as
            ``s3://bucket/prefix``. Payloads are stored as ``SESSION/SCOPE/ENTITY``, and ``SESSION/entities.jsonl`` has
            a line for each entity.
        storage: Options of the object store, ``{"endpoint": URL}``; by default the environment configures it.
        cert: The server's certificate (PEM file), with ``key``; by default one for localhost is made once and kept.
        key: The certificate's private key (PEM file).
        client_ca: A CA (PEM file) that must have signed the certificates of clients. By default clients need none.
        layers: The highest layer to offer, 0 to 2; by default 2.
        window: The most unresolved entities of a scope; by default 65,536.
        mtu: The largest UDP payload to try on the path to a client, 1,200 to 9,000 bytes; by default 6,500 if the
            client is on this machine, else 1,452.
        max_payload: The largest payload in bytes, by default 16 GiB. An entity with a larger one fails.
        events: A file to which every event is appended as a line of JSON.
        read_key: A secret of at least 16 bytes that allows clients to read the sink (`SinkReader.connect`).
        reader_certificates: With ``client_ca``: whether readers need a certificate as well ("required", the default) or
            only the key ("optional").
        defer_types: Content types, ``image/png`` or ``image/*``, whose entities are stored and then deferred under a
            claim check, to be processed later. Needs a sink.
        defer_to: A Quicx daemon, ``quicx://HOST:PORT``, to which every claim check is submitted as a task of type
            ``pipestream.claim`` with a JSON object (`SetAside.to_dict`). The outcome of the task settles the claim
            check as COMPLETE or FAILED. A daemon on another machine needs ``?fingerprint=HEX`` or ``?ca=FILE`` after
            the address; ``cert=FILE&key=FILE`` name a client certificate.
        max_connections_per_address: The most connections from one address, where an IPv6 address stands for its /64;
            further ones are refused. By default seven eighths of all, or 64 if that is more.
        idle_timeout: Seconds without a frame after which a session is closed in which nothing is open; by default 900.
            0: never.
        survive: Seconds that a session waits for its client to reconnect if their connection is lost and the client
            supports that; by default 300. 0: the session ends with its connection. Only at layer 2.
        state: A folder for such sessions, created if missing, so that they outlive this process: nothing that was
            acknowledged is lost, and the next server on the same folders continues them. The sink must be a folder.
        status_interval: Seconds, 0.001 to 10, between writes to stream 0 of every connection, each of 1,152 bytes, so
            that their timing and size reveal nothing about the entities (PipeStream, section 10.6). By default frames
            are written at once.
        claims: A folder for claim checks. By default they are in the sink, as ``SINK/.claims``; servers with the same
            object store share them. With neither sink nor folder nothing can be deferred (`ReceivedEntity.defer` is a
            misuse), because a claim check that is forgotten with the process could be redeemed twice.
        metrics: ``HOST:PORT`` on which ``/metrics`` for Prometheus and ``/healthz`` are served over HTTP. By default
            they are not served.
        references: How to treat entities that refer to objects in stores; by default their messages are stored.
        limits: What clients may make the server do; by default what the specification allows.
        header_key: A key of 64 hex digits with which metadata and content types of headers are sealed in both
            directions; headers that are not sealed with it are rejected. Clients need the same key. Further lines are
            earlier keys, which only open headers.
        state_dir: The folder of the development certificate; by default the state folder of the command line.

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
        """Start to listen; the class describes the arguments.

        Raises:
            PipeStreamError: Of kind "io" if an address, a file or a store fails, "misuse" for invalid options.
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
        """The fingerprint of the server's certificate, ``sha256:HEX``, which clients pin."""
        return self._fingerprint

    @property
    def counters(self) -> ServerCounters:
        """The current counters."""
        return counters_of(self._native.counters())

    def claims(self) -> list[SetAside]:
        """Return the deferred entities and their claim checks that the server knows, in the order of their expiry."""
        return [set_aside_of(row) for row in self._native.claims()]

    def settle(self, claim: ClaimCheck | int | str, status: Status = Status.COMPLETE) -> None:
        """Store the outcome of a deferred entity that no session has redeemed; a second call changes nothing.

        Args:
            claim: The claim check, its ID, or its ID as 16 hex digits.
            status: The outcome: COMPLETE, FAILED, SKIPPED or ABANDONED.

        Raises:
            PipeStreamError: CLAIM_NOT_FOUND if the claim check is unknown or was redeemed by a session; CLAIM_EXPIRED;
                of kind "misuse" for another status.
        """
        self._native.settle(claim_id(claim), status)

    def close(self, grace: float = 10.0) -> None:
        """Accept no more connections, wait up to ``grace`` seconds for sessions to end, then cut off those that remain.

        Closing a closed server changes nothing.
        """
        super().close(grace)
        if self._hand_over is not None:
            self._hand_over.stop()

    def accept(self, timeout: float | None = None) -> Session | None:
        """Wait for the next client and return its session; return None if the server is closed.

        Args:
            timeout: Seconds to wait; by default indefinitely.

        Raises:
            PipeStreamError: Of kind "deadline" after the timeout, "misuse" if the server has a sink.
        """
        native = self._native.next_session(timeout)
        return None if native is None else Session(native)

    def __iter__(self) -> Iterator[Session]:
        """Yield a session for each client until the server is closed."""
        while (session := self.accept()) is not None:
            yield session


def check_defer_to(defer_to: str | None, sink: PathLike | None, claims: PathLike | None) -> None:
    """Reject ``defer_to`` if the server can have no claim checks."""
    if defer_to is not None and sink is None and claims is None:
        raise misuse("defer_to requires sink= or claims=, where claim checks are stored")


def sink_of(sink: PathLike | None) -> PathLike | None:
    """Return the sink as a local path or the URI of a store."""
    try:
        return sink if sink is None or is_uri(os.fspath(sink)) else local_path(os.fspath(sink))
    except ValueError:
        # The core raises the error, with the list of known schemes.
        return sink


def counters_of(fields: "_core._CounterFields") -> ServerCounters:
    """Return the dataclass for the core's counters."""
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
    """Return the folder of the development certificate."""
    return (state_dir() if folder is None else Path(folder)) / "certificate"
