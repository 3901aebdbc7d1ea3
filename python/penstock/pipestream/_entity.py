"""The entities of a session: those that this end sends and those that the peer sends."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self

from penstock import _core
from penstock.errors import PipeStreamError
from penstock.pipestream._codes import ErrorCode, Status, YieldReason
from penstock.pipestream._events import reason_of
from penstock.pipestream._frames import EntityHeader, header_of
from penstock.pipestream._keys import EntityKey, Reason, ScopeKey, late
from penstock.pipestream._messages import ClaimCheck, claim_of

if TYPE_CHECKING:
    from penstock.pipestream._session import Session

__all__ = ["Entity", "ReceivedEntity", "SentEntity"]


class NamedEntity:
    """The names of an entity, for blocking and asyncio sessions."""

    __slots__ = ("_depth", "_key", "_parent_id")

    def __init__(self, key: EntityKey, parent_id: int, depth: int) -> None:
        """Entities come from a session; do not make them."""
        self._key = key
        self._parent_id = parent_id
        self._depth = depth

    @property
    def key(self) -> EntityKey:
        """The entity's key, which is unique for the whole session."""
        return self._key

    @property
    def scope_id(self) -> int:
        """The scope's ID on the wire."""
        return self._key.scope_id

    @property
    def entity_id(self) -> int:
        """The entity's ID on the wire, unique in its scope while the entity is in flight."""
        return self._key.entity_id

    @property
    def parent_id(self) -> int:
        """The parent's ID on the wire; 0 for a root."""
        return self._parent_id

    @property
    def depth(self) -> int:
        """The depth of its scope, 0 to 7."""
        return self._depth

    def __reduce__(self) -> NoReturn:
        """Not picklable: it belongs to a live session."""
        raise TypeError(
            f"a {type(self).__name__} belongs to a live session and cannot be pickled; send its key instead"
        )

    def __repr__(self) -> str:
        """Return the class and both IDs."""
        return f"{type(self).__name__}(scope_id={self.scope_id}, entity_id={self.entity_id})"


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


@dataclass(frozen=True, slots=True)
class Ending:
    """The outcome of an entity that this end sent."""

    status: Status
    reason: Reason | None
    attempts: int
    claim: int | None


def ending_of(outcome: "tuple[int, _core._ReasonFields | None, int, int | None]") -> Ending:
    """Return the dataclass for an outcome of the core."""
    status, reason, attempts, claim = outcome
    return Ending(Status(status), reason_of(reason), attempts, claim)


class SentEntity(Entity):
    """An entity that `Session.send` has announced, and whose payload is sent in the background."""

    __slots__ = ("_child_scope", "_dehydrated", "_lock", "_outcome")

    def __init__(self, session: "Session", ticket: "_core._TicketFields", dehydrated: bool) -> None:
        """Entities come from `Session.send`; do not make them."""
        super().__init__(session, EntityKey(*ticket["key"]), ticket["parent_id"], ticket["depth"])
        scope = ticket["child_scope"]
        self._child_scope = None if scope is None else ScopeKey(*scope)
        self._dehydrated = dehydrated
        self._lock = threading.Lock()
        self._outcome: Ending | None = None

    @property
    def is_dehydrated(self) -> bool:
        """Whether the entity has children."""
        return self._dehydrated

    @property
    def child_scope(self) -> ScopeKey | None:
        """The scope of the children; None without children and at layer 0."""
        return self._child_scope

    def wait(self, timeout: float | None = None) -> Status:
        """Wait until the entity is terminal and return its status.

        The entity is FAILED if its session ends before it is terminal.

        Args:
            timeout: Seconds to wait; by default indefinitely.

        Raises:
            PipeStreamError: Of kind "deadline" after the timeout.
        """
        if not self._settle(timeout):
            raise late(f"{self!r} has not ended")
        return self.status

    @property
    def status(self) -> Status:
        """The status known at this end, without waiting: PENDING or DEHYDRATING until the entity is terminal."""
        self._settle(0)
        if self._outcome is None:
            return Status.DEHYDRATING if self._dehydrated else Status.PENDING
        return self._outcome.status

    @property
    def reason(self) -> Reason | None:
        """Why the entity is terminal and not COMPLETE; None if it is not, or if no reason is known."""
        self._settle(0)
        return None if self._outcome is None else self._outcome.reason

    @property
    def attempts(self) -> int:
        """How often the entity was sent: more than once if a policy retries failures; 1 until it is terminal."""
        self._settle(0)
        return 1 if self._outcome is None else self._outcome.attempts

    @property
    def claim(self) -> int | None:
        """The ID of the claim check if the entity is DEFERRED, else None."""
        self._settle(0)
        return None if self._outcome is None else self._outcome.claim

    def fail(self, reason: str, *, code: int = ErrorCode.INTERNAL_ERROR) -> None:
        """Reset the stream of the entity and make it FAILED, unless its status is final already.

        Args:
            reason: The reason, for the peer's logs and the receipt.
            code: The code of the reason (`ErrorCode`).
        """
        self._session.fail(self, code, reason)

    def _settle(self, timeout: float | None) -> bool:
        """Wait for the outcome and keep it; return whether it is known. The core returns it only once."""
        if self._outcome is not None:
            return True
        if not self._lock.acquire(timeout=-1 if timeout is None else max(timeout, 0)):
            return False
        try:
            if self._outcome is None:
                outcome = self._session._native.wait_resolved(self._key, timeout)
                if outcome is None:
                    return False
                self._outcome = ending_of(outcome)
            return True
        finally:
            self._lock.release()


class ReceivedEntity(Entity):
    """An entity of the peer: its header has arrived, its payload has arrived or is arriving.

    Read the payload, store it safely, then call `complete`: only then does the peer see COMPLETE. As a context manager
    it completes the entity at the end, or fails it if the block raises. An entity that is dropped without a decision
    fails. The example of `Server` receives entities.
    """

    __slots__ = ("_decided", "_header", "_native", "_rest")

    def __init__(self, session: "Session", native: "_core.IncomingEntity") -> None:
        """Entities come from a session; do not make them."""
        header = header_of(native.header())
        super().__init__(session, EntityKey(*native.key()), header.parent_id, native.depth())
        self._native = native
        self._header = header
        self._rest = memoryview(b"")
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

    def __iter__(self) -> Iterator[bytes]:
        """Yield the payload in pieces as they arrive; the iteration ends only if length and checksum are right.

        Raises:
            PipeStreamError: As `read`.
        """
        if self._rest:
            rest, self._rest = self._rest.tobytes(), memoryview(b"")
            yield rest
        while (piece := self._native.chunk(None)) is not None:
            yield piece

    def read(self, size: int = -1) -> bytes:
        """Read ``size`` bytes of the payload, or all remaining bytes by default.

        Waits for the bytes. Returns fewer than ``size`` only at the end, once length and checksum have been verified.

        Raises:
            PipeStreamError: ENTITY_INVALID for a wrong length, INTEGRITY_ERROR for a wrong checksum, another code
                if the peer gave the entity up. In each case the entity has failed.
        """
        pieces, wanted = [], size
        while wanted:
            if not self._rest:
                piece = self._native.chunk(None)
                if piece is None:
                    break
                self._rest = memoryview(piece)
            taken = self._rest if wanted < 0 else self._rest[:wanted]
            self._rest = self._rest[len(taken) :]
            pieces.append(taken)
            wanted = wanted if wanted < 0 else wanted - len(taken)
        return b"".join(pieces)

    def complete(self) -> None:
        """Report that the entity is safely stored. The part of the payload that was not read is read and checked first.

        An entity with children becomes COMPLETE once all of them are; it may be completed before they have arrived.

        Raises:
            PipeStreamError: If the payload is wrong or the session is over.
        """
        self._decided = True
        self._native.complete()

    def fail(self, reason: str, *, code: int = ErrorCode.INTERNAL_ERROR) -> None:
        """Reject the entity: stop its stream and make it FAILED.

        Args:
            reason: The reason, for the peer.
            code: The code of the reason (`ErrorCode`).
        """
        self._decided = True
        self._native.fail(code, reason)

    def skip(self, reason: str, *, code: int = ErrorCode.NO_ERROR) -> None:
        """Leave the entity out: it becomes SKIPPED, which is not a failure. Layer 2."""
        self._native.skip(code, reason)
        self._decided = True

    def defer(self, reason: str, *, life: float | None = None) -> ClaimCheck:
        """Store a claim check, make the entity DEFERRED and send the claim check to its owner. Layer 2.

        A client that knows the claim check and the session may redeem it once, and send the entity again; or this
        server ends it with `Server.settle`.

        Args:
            reason: The reason, for the list of claim checks and the receipt.
            life: Seconds for which the claim check is valid; by default, and at most, `Limits.max_claim_life`, a day.

        Returns:
            The claim check.

        Raises:
            PipeStreamError: If the entity has ended meanwhile, or the claim check cannot be stored.
        """
        self._unread()
        claim = claim_of(self._native.defer(reason, life))
        self._decided = True
        return claim

    def wait(self, reason: YieldReason, state: bytes = b"", timeout: float | None = None) -> bytes | None:
        """Make the entity YIELDED and wait until its owner resumes it with `Session.resume`. Layer 2.

        Args:
            reason: What the entity waits for.
            state: The state from which to continue. It travels to the owner and back, so keep secrets out of it,
                although it is sealed.
            timeout: Seconds to wait; by default indefinitely. After the timeout the entity is still YIELDED:
                `wait_resumed` continues to wait.

        Returns:
            The state as it was passed. None if bytes of the payload were read since, so that the state is outdated and
            the token was rejected: processing starts again; bytes that were read already are not returned again.

        Raises:
            PipeStreamError: If the entity has ended meanwhile; of kind "deadline" after the timeout.
        """
        self._unread()
        return self._native.wait(reason, state, timeout)

    def wait_resumed(self, timeout: float | None = None) -> bytes | None:
        """Continue a `wait` that has timed out; the result and the errors are the same."""
        return self._native.wait_resumed(timeout)

    def _unread(self) -> None:
        """Return the bytes that the caller has not seen to the core: they do not count as processed."""
        if self._rest:
            self._native.unread(self._rest.tobytes())
            self._rest = memoryview(b"")

    def __enter__(self) -> Self:
        """Return the entity itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Complete the entity, or fail it after an exception, unless that is decided already."""
        if self._decided:
            return
        if kind is None:
            self.complete()
            return
        # The exception may be that the entity has ended already.
        with suppress(PipeStreamError):
            self.fail(f"the receiver failed: {kind.__name__}")
