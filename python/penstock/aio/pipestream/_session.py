"""Sessions, for asyncio."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Self

from penstock import _core
from penstock._pipestream_limits import Limits
from penstock.aio._loop import Starting, futures, limit, result
from penstock.aio.pipestream._entity import Entity, ReceivedEntity, SentEntity
from penstock.aio.pipestream._scope import Scope
from penstock.errors import PipeStreamError
from penstock.pipestream._codes import ErrorCode
from penstock.pipestream._connect import ConnectOptions, client_limits, destination, lasting
from penstock.pipestream._events import Event, LostEvents, event_of, reason_of
from penstock.pipestream._fields import OCTET_STREAM, PathLike, Payload
from penstock.pipestream._frames import Checkpoint
from penstock.pipestream._keys import EntityKey, Reason, misuse
from penstock.pipestream._messages import ClaimCheck, claim_id, claim_of
from penstock.pipestream._pipe_doc import OwnershipContext
from penstock.pipestream._policy import CompletionPolicy
from penstock.pipestream._references import REFERENCE_TYPE, FileStorageReference
from penstock.pipestream._session import SessionState, draft

__all__ = ["Session"]

_EVENTS_AT_ONCE = 256
_ABORT_SECONDS = 1.0


class Session(SessionState):
    """One end of a PipeStream session: `Session.connect` makes a client's, iterating a `Server` yields a server's.

    As an async context manager it closes gracefully at the end (a client's entities are all terminal then), and aborts
    if the block raises. Iterating over it yields the entities that the peer sends. Any number of tasks may use it, and
    cancelling one of them leaves the session usable.

    >>> import asyncio
    >>> from tempfile import TemporaryDirectory
    >>> from penstock.aio.pipestream import Server
    >>> async def main(folder):
    ...     async with Server(sink=folder + "/sink", state_dir=folder) as server:
    ...         async with Session.connect(server.address, fingerprint=server.fingerprint) as session:
    ...             async with session.dehydrate(content_type="application/zip") as scope:
    ...                 page = await scope.send(b"page 1", content_type="text/plain")
    ...             status = await scope.wait()
    ...         return status, page.status, scope.digest.processed
    >>> with TemporaryDirectory() as folder:
    ...     asyncio.run(main(folder))
    (<Status.COMPLETE: 3>, <Status.COMPLETE: 3>, 1)
    """

    __slots__ = ("__weakref__", "_events")

    def __init__(
        self, native: "_core.Session", policy: CompletionPolicy | None = None, authority: str | None = None
    ) -> None:
        """Sessions come from `Session.connect` and `Server`; do not make them."""
        super().__init__(native, policy, authority)
        self._events: deque[Event] = deque()

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
    ) -> "Starting[Session]":
        """Connect to a server and agree on capabilities: await it, or enter it with ``async with``.

        Arguments and errors are those of `penstock.pipestream.Session.connect`.
        """
        server, session_id = destination(address)
        options = ConnectOptions(
            fingerprint=fingerprint,
            ca=ca,
            system_ca=system_ca,
            cert=cert,
            key=key,
            server_name=server_name,
            window=window,
            mtu=mtu,
            timeout=None,
            status_interval=status_interval,
            limits=client_limits(limits),
            header_key=header_key,
            **lasting(layers, policy, survive, state, session_id),
        )

        async def start() -> "Session":
            async with limit(timeout, f"{address} did not answer"):
                return cls(await result(futures().connect(server, options)), options.policy, server)

        return Starting(start)

    async def send(
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
        """Announce an entity and send it; return once it is announced and its payload is being sent.

        The call waits while the window is full or too many bytes are queued. If it is cancelled meanwhile, nothing is
        sent, or the entity fails if it was announced already. Files are read and large payloads are hashed outside the
        event loop. Arguments and errors are those of `penstock.pipestream.Session.send`.
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
        return SentEntity(self, await result(futures().send(self._native, of, payload)), dehydrate)

    async def send_many(
        self,
        payloads: Iterable[Payload],
        *,
        parent: SentEntity | Scope | None = None,
        layer: int = 0,
        content_type: str = OCTET_STREAM,
        metadata: Iterable[Mapping[str, str]] | None = None,
    ) -> list[SentEntity]:
        """Send many entities in order with a single wait, which is faster than many calls of `send` for small ones.

        Args:
            payloads: The payloads, each as for `send`.
            parent: As for `send`, for all entities.
            layer: As for `send`, for all entities.
            content_type: As for `send`, for all entities.
            metadata: One mapping for each payload; by default no metadata.

        Raises:
            PipeStreamError: As `send`; then no entity is sent, or those that were announced fail.
            ValueError: If the numbers of mappings and payloads differ.
        """
        common = draft(parent, layer=layer, content_type=content_type)
        if metadata is None:
            items = [(common, payload) for payload in payloads]
        else:
            pairs = zip(payloads, metadata, strict=True)
            items = [(replace(common, metadata=dict(of)), payload) for payload, of in pairs]
        tickets = await result(futures().send_many(self._native, items))
        return [SentEntity(self, ticket, dehydrated=False) for ticket in tickets]

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
    ) -> Starting[Scope]:
        """Send an entity that has children; enter or await the result to get their scope.

        Leaving the ``async with`` block ends the children. The arguments and errors are those of `send`.
        """

        async def start() -> Scope:
            return Scope(
                await self.send(
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
            )

        return Starting(start)

    async def send_reference(
        self,
        reference: FileStorageReference,
        *,
        parent: SentEntity | Scope | None = None,
        layer: int = 0,
        metadata: Mapping[str, str] | None = None,
        approved_key_providers: Sequence[str] = (),
    ) -> SentEntity:
        """Send a reference to an object instead of its bytes.

        Arguments and errors are those of `penstock.pipestream.Session.send_reference`.
        """
        reference.check_keys(approved_key_providers)
        return await self.send(
            reference.encode(), parent=parent, layer=layer, content_type=REFERENCE_TYPE, metadata=metadata
        )

    async def announce_failed(
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
        ticket = await result(futures().announce_failed(self._native, of, code, reason))
        return SentEntity(self, ticket, dehydrated=False)

    async def fail(self, entity: Entity, code: int, reason: str) -> None:
        """Fail an entity of either end, unless it is terminal already."""
        if entity.session is not self:
            raise misuse(f"{entity!r} belongs to another session")
        if isinstance(entity, ReceivedEntity):
            await entity.fail(reason, code=code)
        else:
            await result(futures().fail(self._native, entity.key, code, reason))

    async def skip(self, entity: Entity, reason: str, *, code: int = ErrorCode.NO_ERROR) -> None:
        """Leave an entity of either end out, as SKIPPED, unless it is terminal already. Layer 2."""
        if entity.session is not self:
            raise misuse(f"{entity!r} belongs to another session")
        if isinstance(entity, ReceivedEntity):
            await entity.skip(reason, code=code)
        else:
            await result(futures().skip(self._native, entity.key, code, reason))

    async def resume(self, entity: SentEntity | EntityKey, token: bytes, timeout: float | None = None) -> Reason | None:
        """Let the peer resume an entity of this end that has YIELDED. Layer 2.

        Arguments, result and errors are those of `penstock.pipestream.Session.resume`.
        """
        key = entity if isinstance(entity, EntityKey) else entity.key
        async with limit(timeout, "the peer has not answered"):
            return reason_of(await result(futures().resume(self._native, key, token)))

    async def claim(self, claim: ClaimCheck | int | str, timeout: float | None = 30.0) -> ClaimCheck:
        """Return the current state of a claim check of the peer. Layer 2.

        Arguments and errors are those of `penstock.pipestream.Session.claim`.
        """
        async with limit(timeout, "the peer has not answered"):
            return claim_of(await result(futures().claim(self._native, claim_id(claim))))

    async def redeem(self, claim: ClaimCheck | int | str, session: str, timeout: float | None = 30.0) -> ClaimCheck:
        """Redeem the claim check of an entity that the peer has deferred, which is possible once. Layer 2.

        If the call is cancelled, the claim check may or may not be redeemed. Arguments and errors are those of
        `penstock.pipestream.Session.redeem`.
        """
        async with limit(timeout, "the peer has not answered"):
            return claim_of(await result(futures().redeem(self._native, claim_id(claim), session)))

    async def end_children(self, parent: SentEntity) -> None:
        """Report that the last child of an entity has been sent; without this the entity never becomes terminal."""
        await result(futures().end_children(self._native, parent.key))

    async def end_root(self) -> None:
        """Report that the last root entity has been sent, to get the root scope's digest; never required."""
        await result(futures().end_root(self._native))

    async def checkpoint(
        self,
        entity_id: int = 0,
        *,
        scope_id: int | None = None,
        timeout: float | None = None,
    ) -> Checkpoint:
        """Ask the peer whether all entities of a scope up to a given one are terminal, and wait for the answer.

        Arguments and result are those of `penstock.pipestream.Session.checkpoint`.
        """
        scope = (0 if self.is_client else 1) if scope_id is None else scope_id
        return Checkpoint(**await result(futures().checkpoint(self._native, scope, entity_id, timeout)))

    async def receive(self, timeout: float | None = None) -> ReceivedEntity | None:
        """Wait for the next entity of the peer; return None if the session is over.

        The peer is slowed down while the application does not receive its entities. If the wait is cancelled, no entity
        is lost.

        Args:
            timeout: Seconds to wait; by default indefinitely.

        Raises:
            PipeStreamError: Of kind "deadline" after the timeout.
        """
        async with limit(timeout, "no entity has arrived"):
            native = await result(futures().receive(self._native))
        return None if native is None else ReceivedEntity(self, native)

    async def __aiter__(self) -> AsyncIterator[ReceivedEntity]:
        """Yield the entities of the peer until the session is over."""
        while (entity := await self.receive()) is not None:
            yield entity

    async def events(self, timeout: float | None = None) -> AsyncIterator[Event]:
        """Yield events until the session is over, or until none occurs for ``timeout`` seconds.

        Up to 4,096 events are kept until they are read; if there are more, a `LostEvents` replaces the oldest ones.
        """
        while True:
            while self._events:
                yield self._events.popleft()
            try:
                async with asyncio.timeout(timeout) as limit:
                    fields, lost = await result(futures().events(self._native, _EVENTS_AT_ONCE))
            except TimeoutError:
                # The session may have ended with a deadline of its own.
                if not limit.expired():
                    raise
                return
            if lost:
                self._events.append(LostEvents(lost))
            self._events.extend(event for event in map(event_of, fields) if event is not None)
            if not fields:
                while self._events:
                    yield self._events.popleft()
                return

    async def close(self, timeout: float | None = None) -> None:
        """Close the session. A client first waits until everything is terminal; a server does not wait.

        If the wait is cancelled, the session continues to close.

        Args:
            timeout: Seconds to wait; by default indefinitely.

        Raises:
            PipeStreamError: With the session's reason if the session ended other than by a graceful close; of kind
                "deadline" after the timeout, while the session continues to close.
        """
        async with limit(timeout, "the session has not ended"):
            reason = Reason(**await result(futures().close(self._native)))
        if reason.code != ErrorCode.NO_ERROR and not self._aborted:
            raise reason.error()

    async def abort(self, code: int = ErrorCode.INTERNAL_ERROR, reason: str = "aborted") -> None:
        """End the session immediately; entities that are not terminal fail."""
        self._aborted = True
        self._native.abort(code, reason)

    async def wait_closed(self, timeout: float | None = None) -> Reason:
        """Wait until the session is over and return its reason.

        Args:
            timeout: Seconds to wait; by default indefinitely.

        Raises:
            PipeStreamError: Of kind "deadline" after the timeout.
        """
        async with limit(timeout, "the session has not ended"):
            return Reason(**await result(futures().closed(self._native)))

    async def __aenter__(self) -> Self:
        """Return the session itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close gracefully; after an exception, abort, or leave the session to the next process on its ``state``."""
        if kind is None:
            await self.close()
            return
        # The caller's exception must not be replaced by one of ours.
        with suppress(PipeStreamError):
            self._aborted = True
            self._native.leave(ErrorCode.INTERNAL_ERROR, f"the application failed: {kind.__name__}")
            await self.wait_closed(_ABORT_SECONDS)
