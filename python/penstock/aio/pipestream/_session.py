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
    """One end of a PipeStream session. `Session.connect` makes a client's, iterating a `Server` a server's.

    As an async context manager it closes gracefully at the end, which means that everything sent is terminal, and
    aborts where an exception comes out. Iterating it gives the entities that the peer sends. Any number of tasks may
    use it; a task that is cancelled leaves it usable.

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
        """Use `Session.connect`."""
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

        The arguments are those of `penstock.pipestream.Session.connect`, and so are its errors.
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
        """Announce an entity and send it; return once it is announced and its payload is on its way.

        Back-pressure: waits while the window is full, or while too much waits to be sent. Cancelled while it waits,
        nothing is sent, or what was announced already fails. Files are read and large payloads hashed elsewhere.

        Args and errors are those of `penstock.pipestream.Session.send`.
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
        """Send many entities, in order, with one wait for all: cheaper than `send` for each of many small ones.

        Args:
            payloads: As for `send`.
            parent: As for `send`, for all.
            layer: As for `send`, for all.
            content_type: As for `send`, for all.
            metadata: One mapping for each payload.

        Raises:
            PipeStreamError: As for `send`; then none is sent, or those that were announced fail.
            ValueError: Where there are not as many mappings as payloads.
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
        """Send an entity that has children, and give their scope, for an ``async with`` block. See `send`.

        The end of the block is the end of the children.
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

        Args and errors are those of `penstock.pipestream.Session.send_reference`.
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
        """Announce an entity that cannot be delivered, so that it is counted and its reason is known."""
        of = draft(parent, content_type=content_type, metadata=metadata, label=label)
        ticket = await result(futures().announce_failed(self._native, of, code, reason))
        return SentEntity(self, ticket, dehydrated=False)

    async def fail(self, entity: Entity, code: int, reason: str) -> None:
        """Fail an entity, one of ours or of the peer's, unless it is terminal already."""
        if entity.session is not self:
            raise misuse(f"{entity!r} belongs to another session")
        if isinstance(entity, ReceivedEntity):
            await entity.fail(reason, code=code)
        else:
            await result(futures().fail(self._native, entity.key, code, reason))

    async def skip(self, entity: Entity, reason: str, *, code: int = ErrorCode.NO_ERROR) -> None:
        """Leave an entity out, one of ours or of the peer's, unless it is terminal already: SKIPPED. Layer 2."""
        if entity.session is not self:
            raise misuse(f"{entity!r} belongs to another session")
        if isinstance(entity, ReceivedEntity):
            await entity.skip(reason, code=code)
        else:
            await result(futures().skip(self._native, entity.key, code, reason))

    async def resume(self, entity: SentEntity | EntityKey, token: bytes, timeout: float | None = None) -> Reason | None:
        """Have the peer go on with an entity of ours that waits. See `penstock.pipestream.Session.resume`."""
        key = entity if isinstance(entity, EntityKey) else entity.key
        async with limit(timeout, "the peer has not answered"):
            return reason_of(await result(futures().resume(self._native, key, token)))

    async def claim(self, claim: ClaimCheck | int | str, timeout: float | None = 30.0) -> ClaimCheck:
        """Ask the peer what has become of one of its claim checks. See `penstock.pipestream.Session.claim`."""
        async with limit(timeout, "the peer has not answered"):
            return claim_of(await result(futures().claim(self._native, claim_id(claim))))

    async def redeem(self, claim: ClaimCheck | int | str, session: str, timeout: float | None = 30.0) -> ClaimCheck:
        """Take an entity over that the peer has set aside, once. See `penstock.pipestream.Session.redeem`.

        Cancelled while it waits, it is open whether it was redeemed.
        """
        async with limit(timeout, "the peer has not answered"):
            return claim_of(await result(futures().redeem(self._native, claim_id(claim), session)))

    async def end_children(self, parent: SentEntity) -> None:
        """Say that the last child of an entity has been sent: without it, the entity never becomes terminal."""
        await result(futures().end_children(self._native, parent.key))

    async def end_root(self) -> None:
        """Say that the last root entity has been sent, to have the root scope's digest; never required."""
        await result(futures().end_root(self._native))

    async def checkpoint(
        self,
        entity_id: int = 0,
        *,
        scope_id: int | None = None,
        timeout: float | None = None,
    ) -> Checkpoint:
        """Ask the peer whether all entities of a scope of ours up to one are terminal, and wait for the answer.

        Arguments and result are those of `penstock.pipestream.Session.checkpoint`.
        """
        scope = (0 if self.is_client else 1) if scope_id is None else scope_id
        return Checkpoint(**await result(futures().checkpoint(self._native, scope, entity_id, timeout)))

    async def receive(self, timeout: float | None = None) -> ReceivedEntity | None:
        """Wait for the peer's next entity, at most ``timeout`` seconds; None when the session is over.

        As long as nobody takes its entities, the peer is held back. A cancelled wait takes none.

        Raises:
            PipeStreamError: Of kind "deadline" when the time is over.
        """
        async with limit(timeout, "no entity has come"):
            native = await result(futures().receive(self._native))
        return None if native is None else ReceivedEntity(self, native)

    async def __aiter__(self) -> AsyncIterator[ReceivedEntity]:
        """Give the peer's entities until the session is over."""
        while (entity := await self.receive()) is not None:
            yield entity

    async def events(self, timeout: float | None = None) -> AsyncIterator[Event]:
        """Give what happens until the session is over, or until nothing happens for ``timeout`` seconds.

        The last 4,096 events are kept for whoever asks late; `LostEvents` stands for those before them.
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
        """End the session. A client first waits until everything is terminal; a server does not wait.

        A cancelled wait leaves the session closing.

        Raises:
            PipeStreamError: With the session's reason, if it ended for another one than a graceful close; of kind
                "deadline" when the time is over, and the session goes on to close.
        """
        async with limit(timeout, "the session has not ended"):
            reason = Reason(**await result(futures().close(self._native)))
        if reason.code != ErrorCode.NO_ERROR and not self._aborted:
            raise reason.error()

    async def abort(self, code: int = ErrorCode.INTERNAL_ERROR, reason: str = "aborted") -> None:
        """End the session now; what is not terminal has failed."""
        self._aborted = True
        self._native.abort(code, reason)

    async def wait_closed(self, timeout: float | None = None) -> Reason:
        """Wait for the end of the session, at most ``timeout`` seconds, and give its reason.

        Raises:
            PipeStreamError: Of kind "deadline" when the time is over.
        """
        async with limit(timeout, "the session has not ended"):
            return Reason(**await result(futures().closed(self._native)))

    async def __aenter__(self) -> Self:
        """Give itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close gracefully; where an exception came, abort, or leave it to the next process on its ``state``."""
        if kind is None:
            await self.close()
            return
        # The exception that is on its way is the one to be seen.
        with suppress(PipeStreamError):
            self._aborted = True
            self._native.leave(ErrorCode.INTERNAL_ERROR, f"the application failed: {kind.__name__}")
            await self.wait_closed(_ABORT_SECONDS)
