"""Sessions: connect, send entities and scopes of them, receive the peer's."""

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
    """What is known of an entity before it has an ID."""

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
    """Put together what is known of an entity; its parent may be given by the scope of its children."""
    above = parent.entity if isinstance(parent, ScopeState) else parent
    if owner is not None and doc_id is None:
        raise misuse("an owner goes with a doc_id: the entity has to be a document")
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
    """What a session is called and how it stands, for sessions of either kind."""

    __slots__ = ("_aborted", "_authority", "_native", "_policy")

    def __init__(
        self, native: "_core.Session", policy: "CompletionPolicy | None" = None, authority: str | None = None
    ) -> None:
        """Use `Session.connect`."""
        self._native = native
        self._aborted = False
        self._policy = policy
        # What the server is called in URIs.
        self._authority = authority

    def _told(self, policy: CompletionPolicy | None) -> CompletionPolicy | None:
        """Give what the session is told of an entity's policy."""
        return policy if policy is None or policy.needs_layer_two else policy_at(self.agreement.layer, policy)

    @property
    def id(self) -> str:
        """The session's ID: 32 hex digits, the same at both ends."""
        return self._native.id()

    @property
    def resumed(self) -> bool:
        """Whether an earlier process began it, and this one goes on with what was in its state folder."""
        return self._native.resumed()

    @property
    def closing(self) -> bool:
        """Whether the earlier process was already closing it, or had called `end_root`.

        What that process announced is known by its labels; for anything new close the session, and connect again.
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
        """What both ends have agreed on.

        Raises:
            PipeStreamError: When the session is over.
        """
        return Agreement(**self._native.agreement())

    @property
    def closed(self) -> Reason | None:
        """Why the session is over; None while it is not."""
        return reason_of(self._native.is_closed())

    def __reduce__(self) -> NoReturn:
        """Refuse a pickle."""
        raise TypeError("a Session is a live connection and cannot be pickled; connect anew where you need it")

    def __repr__(self) -> str:
        """Say which end of what, and whether it is over."""
        try:
            end = "client" if self.is_client else "server"
            return f"<Session {self.id} ({end}, peer {self.peer_address}, {'closed' if self.closed else 'open'})>"
        except PipeStreamError as error:
            return f"<Session ({error.message})>"


class Session(SessionState):
    """One end of a PipeStream session. `Session.connect` makes a client's, iterating a `Server` a server's.

    As a context manager it closes gracefully at the end, which means that everything sent is terminal, and aborts
    where an exception comes out. Iterating it gives the entities that the peer sends. It may be used from any thread,
    not from a forked child process: connect anew there.

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
        """Connect to a server and agree on capabilities. Exactly one of the first three says whom to trust.

        Args:
            address: ``HOST:PORT``, an IPv6 address in brackets; ``pipestream://HOST:PORT/SESSION`` names the session.
            fingerprint: The SHA-256 of the server's certificate in hex, ``sha256:`` before it or not.
            ca: A PEM file; a server whose certificate it has signed, for its name, is trusted.
            system_ca: The system's store is that file.
            cert: Our own certificate (PEM), for servers that ask; together with ``key``.
            key: Its private key (PEM).
            server_name: The name that the certificate must be for, if not that of ``address``.
            layers: The highest layer, 0 to 2; by default 1, or 2 where an argument needs it. Claim checks need 2.
            policy: That of root entities, if the server knows of it, and of their children and documents without one.
            survive: Seconds, 86,400 at most, for which another connection is tried when this one is lost; what is not
                terminal is kept for that, 64 MiB and one payload at most. By default the session ends with it.
            state: A folder for this one session, made if need be, so that it outlives the process: an unfinished one in
                there goes on (`resumed`), else a new one begins. ``survive`` is 300 then by default; see ``label``.
            status_interval: Seconds, 0.001 to 10: stream 0 is then written to once in this time, always 1,152 bytes,
                so that its timing and sizes tell nothing of what is processed (section 10.6). By default, at once.
            window: The most unresolved entities of a scope, by default 65,536; the smaller of both ends' counts.
            mtu: The largest UDP payload that is tried, 1,200 to 9,000; by default 6,500 on this machine, else 1,452.
            limits: What the server may make this end do; limits that only servers have are refused.
            timeout: Seconds for all of it. None leaves it to the handshake's own limit.
            header_key: Seal headers, both ways, with this key of 64 hex digits; more lines are earlier keys, to open.

        Raises:
            PipeStreamError: Of kind "io" for no server or trust, "deadline", or "misuse", also for layer 2 without it.
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
        """Announce an entity and send it; return once it is announced and its payload is on its way.

        Back-pressure: waits while the window is full, or while too much waits to be sent.

        Args:
            payload: Bytes, a file by its name, or an open binary file. It is read once to hash it, because the
                checksum stands before it; a file by its name is read again to send it, anything else is kept.
            parent: The entity (sent with ``dehydrate``) or scope that it is a child of.
            dehydrate: Whether it will have children: send them with it as ``parent``, then `end_children`.
                `dehydrate` does the same in a ``with`` block.
            layer: The data layer, 0 to 3 (section 7).
            content_type: The MIME type of the payload.
            metadata: Anything else. Keys that begin with ``pipestream.`` belong to the protocol, but for
                ``pipestream.original-length``, and ``pipestream.claim`` of an entity that was redeemed.
            chunk_size: Send the payload in chunks of so many bytes, each on a stream of its own.
            policy: With ``dehydrate``: what becomes of its children that fail, and of itself then. Layer 2, but for
                ``strict``.
            label: What you call it, 1,024 bytes at most, unlike anything else in the session. Where the session has a
                ``state`` folder and knows the label, the entity is not announced again: what has ended gives its
                outcome at once, else the payload is sent where it is still wanted.
            doc_id: Which document a root entity is (section 7.1); a UUID is recommended. Its header has a `PipeDoc`.
            owner: Whose document it is; together with ``doc_id``.

        Raises:
            PipeStreamError: DEPTH_EXCEEDED, WINDOW_EXCEEDED where it can never be sent; the reason of the end when
                the session is over. Errors of the peer about this entity come by `SentEntity.wait`.
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
        """Send an entity that has children, and give their scope, for a ``with`` block. See `send`.

        The end of the block is the end of the children.
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
        """Send a reference to an object instead of its bytes: see `References` for what a server does with it.

        Args:
            reference: Where the object is, and what it must be.
            parent: As for `send`.
            layer: As for `send`.
            metadata: As for `send`.
            approved_key_providers: Whose keys may have encrypted the object, as `FileStorageReference.check_keys`
                takes them. By default none: an encrypted object is refused.

        Raises:
            PipeStreamError: As `send` and `FileStorageReference.check_keys` do; nothing was sent then.
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
        """Announce an entity that cannot be delivered, so that it is counted and its reason is known."""
        of = draft(parent, content_type=content_type, metadata=metadata, label=label)
        return SentEntity(self, self._native.announce_failed(of, code, reason), dehydrated=False)

    def fail(self, entity: Entity, code: int, reason: str) -> None:
        """Fail an entity, one of ours or of the peer's, unless it is terminal already."""
        if entity.session is not self:
            raise misuse(f"{entity!r} belongs to another session")
        if isinstance(entity, ReceivedEntity):
            entity.fail(reason, code=code)
        else:
            self._native.fail(entity.key, code, reason)

    def skip(self, entity: Entity, reason: str, *, code: int = ErrorCode.NO_ERROR) -> None:
        """Leave an entity out, one of ours or of the peer's, unless it is terminal already: SKIPPED. Layer 2."""
        if entity.session is not self:
            raise misuse(f"{entity!r} belongs to another session")
        if isinstance(entity, ReceivedEntity):
            entity.skip(reason, code=code)
        else:
            self._native.skip(entity.key, code, reason)

    def resume(self, entity: SentEntity | EntityKey, token: bytes, timeout: float | None = None) -> Reason | None:
        """Have the peer go on with an entity of ours that waits; its `YieldedEvent` has the token. Layer 2.

        Returns:
            None, or why the peer does not go on from where it was: it begins anew, or the token is not good.
        """
        key = entity if isinstance(entity, EntityKey) else entity.key
        return reason_of(self._native.resume(key, token, timeout))

    def claim(self, claim: ClaimCheck | int | str, timeout: float | None = 30.0) -> ClaimCheck:
        """Ask the peer what has become of one of its claim checks. Layer 2.

        Args:
            claim: The claim check, its ID, or that in 16 hex digits.
            timeout: Seconds that the answer may take.

        Raises:
            PipeStreamError: CLAIM_NOT_FOUND, also once it has expired.
        """
        return claim_of(self._native.claim(claim_id(claim), timeout))

    def redeem(self, claim: ClaimCheck | int | str, session: str, timeout: float | None = 30.0) -> ClaimCheck:
        """Take an entity over that the peer has set aside, once. Layer 2.

        Then send it anew, in this session, with the metadata ``pipestream.claim``, 16 hex digits: `ClaimCheck.hex`.
        When it ends, the claim check has its status.

        Args:
            claim: The claim check, its ID, or that in 16 hex digits.
            session: The ID of the session in which it was deferred: who guesses a claim's ID does not know it.
            timeout: Seconds that the answer may take.

        Raises:
            PipeStreamError: CLAIM_EXPIRED; CLAIM_NOT_FOUND also for another session's, and if it was redeemed before.
        """
        return claim_of(self._native.redeem(claim_id(claim), session, timeout))

    def end_children(self, parent: SentEntity) -> None:
        """Say that the last child of an entity has been sent: without it, the entity never becomes terminal."""
        self._native.end_children(parent.key)

    def end_root(self) -> None:
        """Say that the last root entity has been sent, to have the root scope's digest; never required."""
        self._native.end_root()

    def checkpoint(
        self, entity_id: int = 0, *, scope_id: int | None = None, timeout: float | None = None
    ) -> Checkpoint:
        """Ask the peer whether all entities of a scope of ours up to one are terminal, and wait for the answer.

        Args:
            entity_id: The last entity that counts; 0 means all sent so far.
            scope_id: The scope; by default our root scope.
            timeout: Seconds that the peer may take to answer; by default 30.

        Returns:
            The answer: ``is_satisfied``, or ``is_timed_out``.
        """
        scope = (0 if self.is_client else 1) if scope_id is None else scope_id
        return Checkpoint(**self._native.checkpoint(scope, entity_id, timeout))

    def receive(self, timeout: float | None = None) -> ReceivedEntity | None:
        """Wait for the peer's next entity, at most ``timeout`` seconds; None when the session is over.

        As long as nobody takes its entities, the peer is held back.

        Raises:
            PipeStreamError: Of kind "deadline" when the time is over.
        """
        native = self._native.next_entity(timeout)
        return None if native is None else ReceivedEntity(self, native)

    def __iter__(self) -> Iterator[ReceivedEntity]:
        """Give the peer's entities until the session is over."""
        while (entity := self.receive()) is not None:
            yield entity

    def events(self, timeout: float | None = None) -> Iterator[Event]:
        """Give what happens until the session is over, or until nothing happens for ``timeout`` seconds.

        The last 4,096 events are kept for whoever asks late; `LostEvents` stands for those before them.
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
        """End the session. A client first waits until everything is terminal; a server does not wait.

        Raises:
            PipeStreamError: With the session's reason, if it ended for another one than a graceful close; of kind
                "deadline" when the time is over, and the session goes on to close.
        """
        reason = Reason(**self._native.close(timeout))
        if reason.code != ErrorCode.NO_ERROR and not self._aborted:
            raise reason.error()

    def abort(self, code: int = ErrorCode.INTERNAL_ERROR, reason: str = "aborted") -> None:
        """End the session now; what is not terminal has failed."""
        self._aborted = True
        self._native.abort(code, reason)

    def wait_closed(self, timeout: float | None = None) -> Reason:
        """Wait for the end of the session, at most ``timeout`` seconds, and give its reason.

        Raises:
            PipeStreamError: Of kind "deadline" when the time is over.
        """
        reason = reason_of(self._native.closed(timeout))
        if reason is None:
            raise late("the session has not ended")
        return reason

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close gracefully; where an exception came, abort, or leave it to the next process on its ``state``."""
        if kind is None:
            self.close()
            return
        # The exception that is on its way is the one to be seen.
        with suppress(PipeStreamError):
            self._aborted = True
            self._native.leave(ErrorCode.INTERNAL_ERROR, f"the application failed: {kind.__name__}")
            self._native.closed(1.0)
