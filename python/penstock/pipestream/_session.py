"""Sessions: connect to a server, send entities and scopes, and receive those of the peer."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NoReturn, Self

from penstock import _core
from penstock._pipestream_limits import Limits
from penstock.errors import PipeStreamError
from penstock.pipestream._codes import ErrorCode
from penstock.pipestream._connect import ConnectOptions, client_limits, destination, lasting, policy_at
from penstock.pipestream._entity import Entity, NamedEntity, ReceivedEntity, SentEntity
from penstock.pipestream._events import Event, LostEvents, event_of, reason_of
from penstock.pipestream._fields import OCTET_STREAM, PathLike, Payload
from penstock.pipestream._frames import Agreement, Checkpoint
from penstock.pipestream._keys import EntityKey, Reason, late, misuse
from penstock.pipestream._messages import ClaimCheck, claim_id, claim_of
from penstock.pipestream._pipe_doc import OwnershipContext
from penstock.pipestream._policy import CompletionPolicy
from penstock.pipestream._references import REFERENCE_TYPE, FileStorageReference
from penstock.pipestream._scope import Scope, ScopeState

__all__ = ["Session"]

_EVENTS_AT_ONCE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An entity before it has an ID."""

    parent: EntityKey | None
    dehydrate: bool
    layer: int
    content_type: str
    metadata: dict[str, str]
    chunk_size: int | None
    policy: CompletionPolicy | None
    label: bytes
    doc_id: str | None
    owner: OwnershipContext | None


def draft(
    parent: NamedEntity | ScopeState[Any] | None,
    *,
    dehydrate: bool = False,
    layer: int = 0,
    content_type: str = OCTET_STREAM,
    metadata: Mapping[str, str] | None = None,
    chunk_size: int | None = None,
    policy: CompletionPolicy | None = None,
    label: str | bytes = b"",
    doc_id: str | None = None,
    owner: OwnershipContext | None = None,
) -> Draft:
    """Return the draft of an entity; the parent may be passed as the scope of its children."""
    above = parent.entity if isinstance(parent, ScopeState) else parent
    if owner is not None and doc_id is None:
        raise misuse("an owner requires a doc_id: the entity must be a document")
    return Draft(
        parent=None if above is None else above.key,
        dehydrate=dehydrate,
        layer=layer,
        content_type=content_type,
        metadata=dict(metadata or {}),
        chunk_size=chunk_size,
        policy=policy,
        label=label.encode() if isinstance(label, str) else label,
        doc_id=doc_id,
        owner=owner,
    )


class SessionState:
    """The names and the state of a session, for blocking and asyncio sessions."""

    __slots__ = ("_aborted", "_authority", "_native", "_policy")

    def __init__(
        self, native: "_core.Session", policy: "CompletionPolicy | None" = None, authority: str | None = None
    ) -> None:
        """Sessions come from `Session.connect` and `Server`; do not make them."""
        self._native = native
        self._aborted = False
        self._policy = policy
        # The server's name in URIs.
        self._authority = authority

    def _told(self, policy: CompletionPolicy | None) -> CompletionPolicy | None:
        """Return the policy of an entity that the core is given: None if the layer implies it."""
        return policy if policy is None or policy.needs_layer_two else policy_at(self.agreement.layer, policy)

    @property
    def id(self) -> str:
        """The session's ID: 32 hex digits, the same at both ends."""
        return self._native.id()

    @property
    def resumed(self) -> bool:
        """Whether an earlier process began the session, and this one continues it from the state folder."""
        return self._native.resumed()

    @property
    def closing(self) -> bool:
        """Whether the earlier process was already closing the session, or had called `end_root`.

        The session knows the entities that the earlier process announced by their labels. To send others, close it and
        connect again.
        """
        return self._native.closing()

    @property
    def is_client(self) -> bool:
        """Whether this end connected. A client's root scope is 0, a server's 1."""
        return self._native.is_client()

    @property
    def peer_address(self) -> str:
        """The peer's ``HOST:PORT``."""
        return self._native.peer_address()

    @property
    def agreement(self) -> Agreement:
        """The layer and the limits that both ends have agreed on.

        Raises:
            PipeStreamError: If the session is over.
        """
        return Agreement(**self._native.agreement())

    @property
    def closed(self) -> Reason | None:
        """The reason why the session is over; None while it is open."""
        return reason_of(self._native.is_closed())

    def __reduce__(self) -> NoReturn:
        """Not picklable: it is a live connection."""
        raise TypeError("a Session is a live connection and cannot be pickled; connect again where you need it")

    def __repr__(self) -> str:
        """Return the session's ID, its role, its peer and whether it is closed."""
        try:
            end = "client" if self.is_client else "server"
            return f"<Session {self.id} ({end}, peer {self.peer_address}, {'closed' if self.closed else 'open'})>"
        except PipeStreamError as error:
            return f"<Session ({error.message})>"


class Session(SessionState):
    """One end of a PipeStream session: `Session.connect` makes a client's, iterating a `Server` yields a server's.

    As a context manager it closes gracefully at the end (a client's entities are all terminal then), and aborts if the
    block raises. Iterating over it yields the entities that the peer sends. It may be used from any thread, but not in
    a forked child process, which must connect again.

    >>> from tempfile import TemporaryDirectory
    >>> from penstock.pipestream import Server
    >>> with TemporaryDirectory() as folder, Server(sink=folder + "/sink", state_dir=folder) as server:
    ...     with Session.connect(server.address, fingerprint=server.fingerprint) as session:
    ...         with session.dehydrate(content_type="application/zip") as scope:
    ...             page = scope.send(b"page 1", content_type="text/plain")
    ...         status = scope.wait()
    >>> status, page.status, scope.digest.processed
    (<Status.COMPLETE: 3>, <Status.COMPLETE: 3>, 1)
    """

    __slots__ = ()

    @classmethod
    def connect(
        cls,
        address: str,
        *,
        fingerprint: str | None = None,
        ca: PathLike | None = None,
        system_ca: bool = False,
        cert: PathLike | None = None,
        key: PathLike | None = None,
        server_name: str | None = None,
        layers: int | None = None,
        policy: CompletionPolicy | None = None,
        survive: float | None = None,
        state: PathLike | None = None,
        status_interval: float | None = None,
        window: int | None = None,
        mtu: int | None = None,
        limits: Limits | None = None,
        timeout: float | None = 10.0,
        header_key: str | None = None,
    ) -> "Session":
        """Connect to a server and agree on capabilities.

        Exactly one of ``fingerprint``, ``ca`` and ``system_ca`` must be given: it determines which server is trusted.

        Args:
            address: ``HOST:PORT``, an IPv6 address in brackets; ``pipestream://HOST:PORT/SESSION`` names the session.
            fingerprint: Trust the server whose certificate has this SHA-256, in hex, with or without ``sha256:``.
            ca: Trust servers whose certificate is signed by this CA (PEM file) for the server's name.
            system_ca: Trust servers whose certificate is signed by a CA of the system's store.
            cert: The client's certificate (PEM file), for servers that ask for one; requires ``key``.
            key: The certificate's private key (PEM file).
            server_name: The name that the certificate must have; by default the host of ``address``.
            layers: The highest layer to offer, 0 to 2; by default 1, or 2 if an argument needs it. Claim checks need 2.
            policy: The policy of root entities, if the server supports it, and of their children and documents without
                one.
            survive: Seconds, at most 86,400, for which the client reconnects if the connection is lost. Everything that
                is not terminal is kept meanwhile, at most 64 MiB and one payload. By default the session ends with its
                connection.
            state: A folder for this one session, created if missing, so that it outlives the process: an unfinished
                session in it continues (`resumed`), otherwise a new one begins. ``survive`` is then 300 by default. See
                also ``label`` of `send`.
            status_interval: Seconds, 0.001 to 10, between writes to stream 0, each of 1,152 bytes, so that their timing
                and size reveal nothing about the entities (PipeStream, section 10.6). By default frames are written at
                once.
            window: The most unresolved entities of a scope, by default 65,536; the smaller value of both ends applies.
            mtu: The largest UDP payload to try, 1,200 to 9,000 bytes; by default 6,500 on this machine, else 1,452.
            limits: What the server may make this end do; a limit that only servers have is an error.
            timeout: Seconds to connect and agree. None: only the handshake's own limit applies.
            header_key: A key of 64 hex digits that seals headers in both directions; further lines are earlier keys,
                which only open headers.

        Raises:
            PipeStreamError: Of kind "io" if the server is unreachable or not trusted, "deadline" after the timeout,
                "misuse" for invalid arguments, and if an argument needs layer 2 and ``layers`` excludes it.
        """
        address, session_id = destination(address)
        options = ConnectOptions(
            fingerprint=fingerprint,
            ca=ca,
            system_ca=system_ca,
            cert=cert,
            key=key,
            server_name=server_name,
            window=window,
            mtu=mtu,
            timeout=timeout,
            status_interval=status_interval,
            limits=client_limits(limits),
            header_key=header_key,
            **lasting(layers, policy, survive, state, session_id),
        )
        return cls(_core.Session.connect(address, options), options.policy, address)

    def send(
        self,
        payload: Payload = b"",
        *,
        parent: SentEntity | Scope | None = None,
        dehydrate: bool = False,
        layer: int = 0,
        content_type: str = OCTET_STREAM,
        metadata: Mapping[str, str] | None = None,
        chunk_size: int | None = None,
        policy: CompletionPolicy | None = None,
        label: str | bytes = b"",
        doc_id: str | None = None,
        owner: OwnershipContext | None = None,
    ) -> SentEntity:
        """Announce an entity and send it; return once it is announced and its payload is queued.

        Applies back-pressure: waits while the window is full, or while too many bytes are queued.

        Args:
            payload: Bytes, the path of a file, or an open binary file. It is read once to compute the checksum, which
                precedes it on the wire. A file given by its path is read again to send it; other payloads are kept.
            parent: The parent, as its entity (sent with ``dehydrate=True``) or its scope; by default none.
            dehydrate: Whether the entity will have children: send them with it as ``parent``, then call `end_children`.
                The method `dehydrate` does the same in a ``with`` block.
            layer: The data layer, 0 to 3 (PipeStream, section 7).
            content_type: The MIME type of the payload.
            metadata: Any strings for the receiver. Keys that begin with ``pipestream.`` belong to the protocol, except
                ``pipestream.original-length``, and ``pipestream.claim`` of an entity whose claim check was redeemed.
            chunk_size: Send the payload in chunks of this many bytes, each on a stream of its own.
            policy: With ``dehydrate``: what happens to children that fail, and then to the entity. Needs layer 2,
                except for ``strict``.
            label: A label of at most 1,024 bytes, unique in the session. If the session has a ``state`` folder and
                knows the label, the entity is not announced again: an entity that has ended has its outcome at once,
                otherwise the payload is sent if it is still needed.
            doc_id: The document ID of a root entity (PipeStream, section 7.1), preferably a UUID. Its header gets a
                `PipeDoc`.
            owner: The owner of the document; requires ``doc_id``.

        Returns:
            The entity, whose outcome `SentEntity.wait` returns.

        Raises:
            PipeStreamError: DEPTH_EXCEEDED; WINDOW_EXCEEDED if the entity can never be sent; the session's reason if
                the session is over. If the peer rejects the entity, nothing is raised: see `SentEntity.reason`.
        """
        of = draft(
            parent,
            dehydrate=dehydrate,
            layer=layer,
            content_type=content_type,
            metadata=metadata,
            chunk_size=chunk_size,
            policy=self._told(policy),
            label=label,
            doc_id=doc_id,
            owner=owner,
        )
        return SentEntity(self, self._native.send(of, payload), dehydrate)

    def dehydrate(
        self,
        payload: Payload = b"",
        *,
        parent: SentEntity | Scope | None = None,
        layer: int = 0,
        content_type: str = OCTET_STREAM,
        metadata: Mapping[str, str] | None = None,
        chunk_size: int | None = None,
        policy: CompletionPolicy | None = None,
        label: str | bytes = b"",
        doc_id: str | None = None,
        owner: OwnershipContext | None = None,
    ) -> Scope:
        """Send an entity that has children, and return their scope for a ``with`` block; leaving it ends the children.

        The arguments and errors are those of `send`.
        """
        entity = self.send(
            payload,
            parent=parent,
            dehydrate=True,
            layer=layer,
            content_type=content_type,
            metadata=metadata,
            chunk_size=chunk_size,
            policy=policy,
            label=label,
            doc_id=doc_id,
            owner=owner,
        )
        return Scope(entity)

    def send_reference(
        self,
        reference: FileStorageReference,
        *,
        parent: SentEntity | Scope | None = None,
        layer: int = 0,
        metadata: Mapping[str, str] | None = None,
        approved_key_providers: Sequence[str] = (),
    ) -> SentEntity:
        """Send a reference to an object instead of its bytes; `References` describes what a server does with it.

        Args:
            reference: The location of the object, and its required attributes.
            parent: As for `send`.
            layer: As for `send`.
            metadata: As for `send`.
            approved_key_providers: The providers whose keys may have encrypted the object, as for
                `FileStorageReference.check_keys`. By default none: a reference to an encrypted object is rejected.

        Raises:
            PipeStreamError: As `send` and `FileStorageReference.check_keys`; nothing is sent then.
        """
        reference.check_keys(approved_key_providers)
        return self.send(reference.encode(), parent=parent, layer=layer, content_type=REFERENCE_TYPE, metadata=metadata)

    def announce_failed(
        self,
        reason: str,
        *,
        code: int = ErrorCode.INTERNAL_ERROR,
        parent: SentEntity | Scope | None = None,
        content_type: str = OCTET_STREAM,
        metadata: Mapping[str, str] | None = None,
        label: str | bytes = b"",
    ) -> SentEntity:
        """Announce an entity that cannot be delivered as FAILED, so that the peer counts it and knows the reason."""
        of = draft(parent, content_type=content_type, metadata=metadata, label=label)
        return SentEntity(self, self._native.announce_failed(of, code, reason), dehydrated=False)

    def fail(self, entity: Entity, code: int, reason: str) -> None:
        """Fail an entity of either end, unless it is terminal already."""
        if entity.session is not self:
            raise misuse(f"{entity!r} belongs to another session")
        if isinstance(entity, ReceivedEntity):
            entity.fail(reason, code=code)
        else:
            self._native.fail(entity.key, code, reason)

    def skip(self, entity: Entity, reason: str, *, code: int = ErrorCode.NO_ERROR) -> None:
        """Leave an entity of either end out, as SKIPPED, unless it is terminal already. Layer 2."""
        if entity.session is not self:
            raise misuse(f"{entity!r} belongs to another session")
        if isinstance(entity, ReceivedEntity):
            entity.skip(reason, code=code)
        else:
            self._native.skip(entity.key, code, reason)

    def resume(self, entity: SentEntity | EntityKey, token: bytes, timeout: float | None = None) -> Reason | None:
        """Let the peer resume an entity of this end that has YIELDED. Layer 2.

        Args:
            entity: The entity, or its key.
            token: The token of its `YieldedEvent`.
            timeout: Seconds to wait for the answer; by default indefinitely.

        Returns:
            None if the peer resumes, or the reason why it does not: it starts again, or the token is invalid.
        """
        key = entity if isinstance(entity, EntityKey) else entity.key
        return reason_of(self._native.resume(key, token, timeout))

    def claim(self, claim: ClaimCheck | int | str, timeout: float | None = 30.0) -> ClaimCheck:
        """Return the current state of a claim check of the peer. Layer 2.

        Args:
            claim: The claim check, its ID, or its ID as 16 hex digits.
            timeout: Seconds to wait for the answer.

        Raises:
            PipeStreamError: CLAIM_NOT_FOUND, also if the claim check has expired.
        """
        return claim_of(self._native.claim(claim_id(claim), timeout))

    def redeem(self, claim: ClaimCheck | int | str, session: str, timeout: float | None = 30.0) -> ClaimCheck:
        """Redeem the claim check of an entity that the peer has deferred, which is possible once. Layer 2.

        Then send the entity again in this session, with the claim's ID (`ClaimCheck.hex`) as the metadata
        ``pipestream.claim``. When the entity ends, the claim check gets its status.

        Args:
            claim: The claim check, its ID, or its ID as 16 hex digits.
            session: The ID of the session in which the entity was deferred; a guessed claim ID is useless without it.
            timeout: Seconds to wait for the answer.

        Raises:
            PipeStreamError: CLAIM_EXPIRED; CLAIM_NOT_FOUND, also if the claim check is of another session or was
                redeemed before.
        """
        return claim_of(self._native.redeem(claim_id(claim), session, timeout))

    def end_children(self, parent: SentEntity) -> None:
        """Report that the last child of an entity has been sent; without this the entity never becomes terminal."""
        self._native.end_children(parent.key)

    def end_root(self) -> None:
        """Report that the last root entity has been sent, to get the root scope's digest; never required."""
        self._native.end_root()

    def checkpoint(
        self, entity_id: int = 0, *, scope_id: int | None = None, timeout: float | None = None
    ) -> Checkpoint:
        """Ask the peer whether all entities of a scope up to a given one are terminal, and wait for the answer.

        Args:
            entity_id: The last entity to include; 0 means all entities sent so far.
            scope_id: A scope of this end; by default its root scope.
            timeout: Seconds that the peer may take to answer; by default 30.

        Returns:
            The answer, with ``is_satisfied`` or ``is_timed_out``.
        """
        scope = (0 if self.is_client else 1) if scope_id is None else scope_id
        return Checkpoint(**self._native.checkpoint(scope, entity_id, timeout))

    def receive(self, timeout: float | None = None) -> ReceivedEntity | None:
        """Wait for the next entity of the peer; return None if the session is over.

        The peer is slowed down while the application does not receive its entities.

        Args:
            timeout: Seconds to wait; by default indefinitely.

        Raises:
            PipeStreamError: Of kind "deadline" after the timeout.
        """
        native = self._native.next_entity(timeout)
        return None if native is None else ReceivedEntity(self, native)

    def __iter__(self) -> Iterator[ReceivedEntity]:
        """Yield the entities of the peer until the session is over."""
        while (entity := self.receive()) is not None:
            yield entity

    def events(self, timeout: float | None = None) -> Iterator[Event]:
        """Yield events until the session is over, or until none occurs for ``timeout`` seconds.

        Up to 4,096 events are kept until they are read; if there are more, a `LostEvents` replaces the oldest ones.
        """
        while (batch := self._native.events(_EVENTS_AT_ONCE, timeout)) is not None:
            fields, lost = batch
            if lost:
                yield LostEvents(lost)
            if not fields:
                return
            for each in fields:
                event = event_of(each)
                if event is not None:
                    yield event

    def close(self, timeout: float | None = None) -> None:
        """Close the session. A client first waits until everything is terminal; a server does not wait.

        Args:
            timeout: Seconds to wait; by default indefinitely.

        Raises:
            PipeStreamError: With the session's reason if the session ended other than by a graceful close; of kind
                "deadline" after the timeout, while the session continues to close.
        """
        reason = Reason(**self._native.close(timeout))
        if reason.code != ErrorCode.NO_ERROR and not self._aborted:
            raise reason.error()

    def abort(self, code: int = ErrorCode.INTERNAL_ERROR, reason: str = "aborted") -> None:
        """End the session immediately; entities that are not terminal fail."""
        self._aborted = True
        self._native.abort(code, reason)

    def wait_closed(self, timeout: float | None = None) -> Reason:
        """Wait until the session is over and return its reason.

        Args:
            timeout: Seconds to wait; by default indefinitely.

        Raises:
            PipeStreamError: Of kind "deadline" after the timeout.
        """
        reason = reason_of(self._native.closed(timeout))
        if reason is None:
            raise late("the session has not ended")
        return reason

    def __enter__(self) -> Self:
        """Return the session itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close gracefully; after an exception, abort, or leave the session to the next process on its ``state``."""
        if kind is None:
            self.close()
            return
        # The caller's exception must not be replaced by one of ours.
        with suppress(PipeStreamError):
            self._aborted = True
            self._native.leave(ErrorCode.INTERNAL_ERROR, f"the application failed: {kind.__name__}")
            self._native.closed(1.0)
