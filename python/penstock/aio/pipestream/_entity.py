"""Entities of a session, for asyncio."""

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
    """An entity of a session: a `SentEntity` of ours, or a `ReceivedEntity` of the peer."""

    __slots__ = ("_session",)

    def __init__(self, session: "Session", key: EntityKey, parent_id: int, depth: int) -> None:
        """Entities come from a session; do not make them."""
        super().__init__(key, parent_id, depth)
        self._session = session

    @property
    def session(self) -> "Session":
        """The session that it belongs to."""
        return self._session


class SentEntity(Entity):
    """An entity of ours, announced and on its way by itself. `Session.send` gives it."""

    __slots__ = ("_child_scope", "_dehydrated", "_lock", "_outcome")

    def __init__(self, session: "Session", ticket: "_core._TicketFields", dehydrated: bool) -> None:
        """Entities come from `Session.send`; do not make them."""
        super().__init__(session, EntityKey(*ticket["key"]), ticket["parent_id"], ticket["depth"])
        scope = ticket["child_scope"]
        self._child_scope = None if scope is None else ScopeKey(*scope)
        self._dehydrated = dehydrated
        # The outcome is there to be taken once, and several tasks may wait for it.
        self._lock = asyncio.Lock()
        self._outcome: Ending | None = None

    @property
    def is_dehydrated(self) -> bool:
        """Whether it has children."""
        return self._dehydrated

    @property
    def child_scope(self) -> ScopeKey | None:
        """The scope of its children; None without children, and at layer 0."""
        return self._child_scope

    async def wait(self, timeout: float | None = None) -> Status:
        """Wait until it is terminal, at most ``timeout`` seconds, and give its status.

        An entity whose session ended before is FAILED.

        Raises:
            PipeStreamError: Of kind "deadline" when the time is over.
        """
        async with limit(timeout, f"{self!r} has not ended"), self._lock:
            if self._outcome is None:
                native = self._session._native
                self._outcome = ending_of(await result(futures().wait_resolved(native, self._key)))
        return self._outcome.status

    @property
    def status(self) -> Status:
        """Its status as it is known here, without waiting: PENDING or DEHYDRATING until it is terminal."""
        self._look()
        if self._outcome is None:
            return Status.DEHYDRATING if self._dehydrated else Status.PENDING
        return self._outcome.status

    @property
    def reason(self) -> Reason | None:
        """Why it is not COMPLETE, where it is terminal and somebody said why."""
        self._look()
        return None if self._outcome is None else self._outcome.reason

    @property
    def attempts(self) -> int:
        """How often it was sent; more than once by a policy that has failures come again."""
        self._look()
        return 1 if self._outcome is None else self._outcome.attempts

    @property
    def claim(self) -> int | None:
        """The ID of the claim check under which it is DEFERRED."""
        self._look()
        return None if self._outcome is None else self._outcome.claim

    async def fail(self, reason: str, *, code: int = ErrorCode.INTERNAL_ERROR) -> None:
        """Give it up: its stream is reset and its status becomes FAILED, unless it is terminal already.

        Args:
            reason: Why, for the peer's logs and the receipt.
            code: The registry's number.
        """
        await self._session.fail(self, code, reason)

    def _look(self) -> None:
        # A task that waits for the outcome will have it; it must not be taken from under it.
        if self._outcome is None and not self._lock.locked():
            outcome = self._session._native.wait_resolved(self._key, 0)
            if outcome is not None:
                self._outcome = ending_of(outcome)


class ReceivedEntity(Entity):
    """An entity of the peer: its header is here, its payload is here or coming.

    Read the payload, deliver it to where it is safe, then `complete` it: only then does the peer learn COMPLETE
    (decision 8). As an async context manager it is completed at the end, or failed if an exception comes out, a
    cancellation included. One that is forgotten has failed. The example of `Server` receives some.
    """

    __slots__ = ("_buffer", "_decided", "_header", "_native")

    def __init__(self, session: "Session", native: "_core.IncomingEntity") -> None:
        """Entities come from a session; do not make them."""
        header = header_of(native.header())
        super().__init__(session, EntityKey(*native.key()), header.parent_id, native.depth())
        self._native = native
        self._header = header
        # What was read for somebody who was cancelled before he had all that he wanted.
        self._buffer = bytearray()
        self._decided = False

    @property
    def header(self) -> EntityHeader:
        """Its header as it came: content type, metadata, length and checksum."""
        return self._header

    @property
    def is_dehydrated(self) -> bool:
        """Whether it has children, which are entities of their own."""
        return self._native.is_dehydrated()

    @property
    def is_padding(self) -> bool:
        """Whether it stands for nothing, and only hides how many entities there are; complete it like any other."""
        return self._header.metadata.get("penstock.padding") == "1"

    @property
    def child_scope(self) -> ScopeKey | None:
        """The scope of its children; None without children, and at layer 0."""
        scope = self._native.child_scope()
        return None if scope is None else ScopeKey(*scope)

    @property
    def parent(self) -> EntityKey | None:
        """Its parent; None for a root."""
        parent = self._native.parent()
        return None if parent is None else EntityKey(*parent)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Give the payload piece by piece, as it comes. The end comes only once length and checksum hold."""
        if self._buffer:
            yield self._take(len(self._buffer))
        while (piece := await result(futures().chunk(self._native))) is not None:
            yield piece

    async def read(self, size: int = -1) -> bytes:
        """Read ``size`` bytes of the payload, or all that is left.

        Fewer bytes than asked for, or none, come only at the end, once length and checksum hold. A cancelled read
        takes nothing.

        Raises:
            PipeStreamError: ENTITY_INVALID for a wrong length, INTEGRITY_ERROR for a wrong checksum, another code
                where the peer gave the entity up. It has failed then.
        """
        while size < 0 or len(self._buffer) < size:
            piece = await result(futures().chunk(self._native))
            if piece is None:
                break
            self._buffer += piece
        return self._take(len(self._buffer) if size < 0 else size)

    async def complete(self) -> None:
        """Say that it is safely delivered; what was not read is read and checked first.

        An entity with children becomes COMPLETE once all of them are; it may be completed before they have come.

        Raises:
            PipeStreamError: Where the payload is wrong, or the session is over.
        """
        await result(futures().complete(self._native))
        self._decided = True

    async def fail(self, reason: str, *, code: int = ErrorCode.INTERNAL_ERROR) -> None:
        """Reject it: its stream is stopped and its status becomes FAILED.

        Args:
            reason: Why, for the peer.
            code: The registry's number.
        """
        self._decided = True
        # It is only said here, and waits for nothing.
        self._native.fail(code, reason)

    async def skip(self, reason: str, *, code: int = ErrorCode.NO_ERROR) -> None:
        """Leave it out: its status becomes SKIPPED, which is no failure. Layer 2."""
        # It is only said here, and waits for nothing.
        self._native.skip(code, reason)
        self._decided = True

    async def defer(self, reason: str, *, life: float | None = None) -> ClaimCheck:
        """Set it aside under a claim check: DEFERRED. See `penstock.pipestream.ReceivedEntity.defer`. Layer 2."""
        self._unread()
        claim = claim_of(await result(futures().defer(self._native, reason, life)))
        self._decided = True
        return claim

    async def wait(self, reason: YieldReason, state: bytes = b"", timeout: float | None = None) -> bytes | None:
        """Say that it waits, and wait until its owner has it go on. See `penstock.pipestream.ReceivedEntity.wait`.

        Cancelled, it still waits: `wait_resumed` goes on waiting.
        """
        self._unread()
        async with limit(timeout, f"{self!r} still waits"):
            return await result(futures().wait(self._native, reason, state))

    async def wait_resumed(self, timeout: float | None = None) -> bytes | None:
        """Go on waiting, after a `wait` that took too long or was cancelled."""
        async with limit(timeout, f"{self!r} still waits"):
            return await result(futures().wait_resumed(self._native))

    def _unread(self) -> None:
        """Give back what nobody was given: it is not processed."""
        if self._buffer:
            self._native.unread(bytes(self._buffer))
            self._buffer.clear()

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    async def __aenter__(self) -> Self:
        """Give itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Complete it, or fail it where an exception came; neither if that was done already."""
        if self._decided:
            return
        if kind is None:
            await self.complete()
            return
        # The exception may be that it has ended.
        with suppress(PipeStreamError):
            await self.fail(f"the receiver failed: {kind.__name__}")
