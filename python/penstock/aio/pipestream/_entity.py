"""The entities of a session, for asyncio."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock import _core
from penstock.aio._loop import futures, limit, result
from penstock.errors import PipeStreamError
from penstock.pipestream._codes import ErrorCode, Status, YieldReason
from penstock.pipestream._entity import Ending, NamedEntity, ending_of
from penstock.pipestream._frames import EntityHeader, header_of
from penstock.pipestream._keys import EntityKey, Reason, ScopeKey
from penstock.pipestream._messages import ClaimCheck, claim_of

if TYPE_CHECKING:
    from penstock.aio.pipestream._session import Session

__all__ = ["Entity", "ReceivedEntity", "SentEntity"]


class Entity(NamedEntity):
    """An entity of a session: a `SentEntity` of this end or a `ReceivedEntity` of the peer."""

    __slots__ = ("_session",)

    def __init__(self, session: "Session", key: EntityKey, parent_id: int, depth: int) -> None:
        """Entities come from a session; do not make them."""
        super().__init__(key, parent_id, depth)
        self._session = session

    @property
    def session(self) -> "Session":
        """The session of the entity."""
        return self._session


class SentEntity(Entity):
    """An entity that `Session.send` has announced, and whose payload is sent in the background."""

    __slots__ = ("_child_scope", "_dehydrated", "_lock", "_outcome")

    def __init__(self, session: "Session", ticket: "_core._TicketFields", dehydrated: bool) -> None:
        """Entities come from `Session.send`; do not make them."""
        super().__init__(session, EntityKey(*ticket["key"]), ticket["parent_id"], ticket["depth"])
        scope = ticket["child_scope"]
        self._child_scope = None if scope is None else ScopeKey(*scope)
        self._dehydrated = dehydrated
        # The core returns the outcome only once, and several tasks may wait for it.
        self._lock = asyncio.Lock()
        self._outcome: Ending | None = None

    @property
    def is_dehydrated(self) -> bool:
        """Whether the entity has children."""
        return self._dehydrated

    @property
    def child_scope(self) -> ScopeKey | None:
        """The scope of the children; None without children and at layer 0."""
        return self._child_scope

    async def wait(self, timeout: float | None = None) -> Status:
        """Wait until the entity is terminal and return its status.

        The entity is FAILED if its session ends before it is terminal.

        Args:
            timeout: Seconds to wait; by default indefinitely.

        Raises:
            PipeStreamError: Of kind "deadline" after the timeout.
        """
        async with limit(timeout, f"{self!r} has not ended"), self._lock:
            if self._outcome is None:
                native = self._session._native
                self._outcome = ending_of(await result(futures().wait_resolved(native, self._key)))
        return self._outcome.status

    @property
    def status(self) -> Status:
        """The status known at this end, without waiting: PENDING or DEHYDRATING until the entity is terminal."""
        self._look()
        if self._outcome is None:
            return Status.DEHYDRATING if self._dehydrated else Status.PENDING
        return self._outcome.status

    @property
    def reason(self) -> Reason | None:
        """Why the entity is terminal and not COMPLETE; None if it is not, or if no reason is known."""
        self._look()
        return None if self._outcome is None else self._outcome.reason

    @property
    def attempts(self) -> int:
        """How often the entity was sent: more than once if a policy retries failures; 1 until it is terminal."""
        self._look()
        return 1 if self._outcome is None else self._outcome.attempts

    @property
    def claim(self) -> int | None:
        """The ID of the claim check if the entity is DEFERRED, else None."""
        self._look()
        return None if self._outcome is None else self._outcome.claim

    async def fail(self, reason: str, *, code: int = ErrorCode.INTERNAL_ERROR) -> None:
        """Reset the stream of the entity and make it FAILED, unless its status is final already.

        Args:
            reason: The reason, for the peer's logs and the receipt.
            code: The code of the reason (`ErrorCode`).
        """
        await self._session.fail(self, code, reason)

    def _look(self) -> None:
        # A task that holds the lock is waiting for the outcome, and will store it.
        if self._outcome is None and not self._lock.locked():
            outcome = self._session._native.wait_resolved(self._key, 0)
            if outcome is not None:
                self._outcome = ending_of(outcome)


class ReceivedEntity(Entity):
    """An entity of the peer: its header has arrived, its payload has arrived or is arriving.

    Read the payload, store it safely, then call `complete`: only then does the peer see COMPLETE. As an async context
    manager it completes the entity at the end, or fails it if the block raises or is cancelled. An entity that is
    dropped without a decision fails. The example of `Server` receives entities.
    """

    __slots__ = ("_buffer", "_decided", "_header", "_native")

    def __init__(self, session: "Session", native: "_core.IncomingEntity") -> None:
        """Entities come from a session; do not make them."""
        header = header_of(native.header())
        super().__init__(session, EntityKey(*native.key()), header.parent_id, native.depth())
        self._native = native
        self._header = header
        # Bytes that were read for a `read` that was cancelled before it had enough.
        self._buffer = bytearray()
        self._decided = False

    @property
    def header(self) -> EntityHeader:
        """The header as received: content type, metadata, length and checksum."""
        return self._header

    @property
    def is_dehydrated(self) -> bool:
        """Whether the entity has children, which are received as entities of their own."""
        return self._native.is_dehydrated()

    @property
    def is_padding(self) -> bool:
        """Whether the entity is padding that only hides the number of real entities; complete it like any other."""
        return self._header.metadata.get("penstock.padding") == "1"

    @property
    def child_scope(self) -> ScopeKey | None:
        """The scope of the children; None without children and at layer 0."""
        scope = self._native.child_scope()
        return None if scope is None else ScopeKey(*scope)

    @property
    def parent(self) -> EntityKey | None:
        """The parent; None for a root."""
        parent = self._native.parent()
        return None if parent is None else EntityKey(*parent)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the payload in pieces as they arrive; the iteration ends only if length and checksum are right.

        Raises:
            PipeStreamError: As `read`.
        """
        if self._buffer:
            yield self._take(len(self._buffer))
        while (piece := await result(futures().chunk(self._native))) is not None:
            yield piece

    async def read(self, size: int = -1) -> bytes:
        """Read ``size`` bytes of the payload, or all remaining bytes by default.

        Waits for the bytes. Returns fewer than ``size`` only at the end, once length and checksum have been verified.
        If the read is cancelled, no bytes are lost.

        Raises:
            PipeStreamError: ENTITY_INVALID for a wrong length, INTEGRITY_ERROR for a wrong checksum, another code
                if the peer gave the entity up. In each case the entity has failed.
        """
        while size < 0 or len(self._buffer) < size:
            piece = await result(futures().chunk(self._native))
            if piece is None:
                break
            self._buffer += piece
        return self._take(len(self._buffer) if size < 0 else size)

    async def complete(self) -> None:
        """Report that the entity is safely stored. The part of the payload that was not read is read and checked first.

        An entity with children becomes COMPLETE once all of them are; it may be completed before they have arrived.

        Raises:
            PipeStreamError: If the payload is wrong or the session is over.
        """
        await result(futures().complete(self._native))
        self._decided = True

    async def fail(self, reason: str, *, code: int = ErrorCode.INTERNAL_ERROR) -> None:
        """Reject the entity: stop its stream and make it FAILED.

        Args:
            reason: The reason, for the peer.
            code: The code of the reason (`ErrorCode`).
        """
        self._decided = True
        # This only queues the failure, so it does not block the event loop.
        self._native.fail(code, reason)

    async def skip(self, reason: str, *, code: int = ErrorCode.NO_ERROR) -> None:
        """Leave the entity out: it becomes SKIPPED, which is not a failure. Layer 2."""
        # This only queues the status, so it does not block the event loop.
        self._native.skip(code, reason)
        self._decided = True

    async def defer(self, reason: str, *, life: float | None = None) -> ClaimCheck:
        """Make the entity DEFERRED under a claim check. Layer 2.

        Arguments, result and errors are those of `penstock.pipestream.ReceivedEntity.defer`.
        """
        self._unread()
        claim = claim_of(await result(futures().defer(self._native, reason, life)))
        self._decided = True
        return claim

    async def wait(self, reason: YieldReason, state: bytes = b"", timeout: float | None = None) -> bytes | None:
        """Make the entity YIELDED and wait until its owner resumes it with `Session.resume`. Layer 2.

        If the call is cancelled, the entity is still YIELDED: `wait_resumed` continues to wait. Arguments, result and
        errors are those of `penstock.pipestream.ReceivedEntity.wait`.
        """
        self._unread()
        async with limit(timeout, f"{self!r} is still waiting"):
            return await result(futures().wait(self._native, reason, state))

    async def wait_resumed(self, timeout: float | None = None) -> bytes | None:
        """Continue a `wait` that has timed out or was cancelled; the result and the errors are the same."""
        async with limit(timeout, f"{self!r} is still waiting"):
            return await result(futures().wait_resumed(self._native))

    def _unread(self) -> None:
        """Return the bytes that the caller has not seen to the core: they do not count as processed."""
        if self._buffer:
            self._native.unread(bytes(self._buffer))
            self._buffer.clear()

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    async def __aenter__(self) -> Self:
        """Return the entity itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Complete the entity, or fail it after an exception, unless that is decided already."""
        if self._decided:
            return
        if kind is None:
            await self.complete()
            return
        # The exception may be that the entity has ended already.
        with suppress(PipeStreamError):
            await self.fail(f"the receiver failed: {kind.__name__}")
