"""Entities of a session: those that we send and those that the peer sends."""

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
    """What an entity is called, in a session of either kind."""

    __slots__ = ("_depth", "_key", "_parent_id")

    def __init__(self, key: EntityKey, parent_id: int, depth: int) -> None:
        """Entities come from a session; do not make them."""
        self._key = key
        self._parent_id = parent_id
        self._depth = depth

    @property
    def key(self) -> EntityKey:
        """Its name in the session, which is never used again."""
        return self._key

    @property
    def scope_id(self) -> int:
        """Its scope on the wire."""
        return self._key.scope_id

    @property
    def entity_id(self) -> int:
        """Its ID on the wire, unique in the scope while it is in flight."""
        return self._key.entity_id

    @property
    def parent_id(self) -> int:
        """Its parent on the wire; 0 for a root."""
        return self._parent_id

    @property
    def depth(self) -> int:
        """The depth of its scope, 0 to 7."""
        return self._depth

    def __reduce__(self) -> NoReturn:
        """Refuse a pickle."""
        raise TypeError(
            f"a {type(self).__name__} belongs to a live session and cannot be pickled; send its key instead"
        )

    def __repr__(self) -> str:
        """Say which."""
        return f"{type(self).__name__}(scope_id={self.scope_id}, entity_id={self.entity_id})"


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


@dataclass(frozen=True, slots=True)
class Ending:
    """How an entity of ours has ended."""

    status: Status
    reason: Reason | None
    attempts: int
    claim: int | None


def ending_of(outcome: "tuple[int, _core._ReasonFields | None, int, int | None]") -> Ending:
    """Make the dataclass from what the core gave."""
    status, reason, attempts, claim = outcome
    return Ending(Status(status), reason_of(reason), attempts, claim)


class SentEntity(Entity):
    """An entity of ours: announced (decision 7), and on its way by itself. `Session.send` gives it."""

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
        """Whether it has children."""
        return self._dehydrated

    @property
    def child_scope(self) -> ScopeKey | None:
        """The scope of its children; None without children, and at layer 0."""
        return self._child_scope

    def wait(self, timeout: float | None = None) -> Status:
        """Wait until it is terminal, at most ``timeout`` seconds, and give its status.

        An entity whose session ended before is FAILED.

        Raises:
            PipeStreamError: Of kind "deadline" when the time is over.
        """
        if not self._settle(timeout):
            raise late(f"{self!r} has not ended")
        return self.status

    @property
    def status(self) -> Status:
        """Its status as it is known here, without waiting: PENDING or DEHYDRATING until it is terminal."""
        self._settle(0)
        if self._outcome is None:
            return Status.DEHYDRATING if self._dehydrated else Status.PENDING
        return self._outcome.status

    @property
    def reason(self) -> Reason | None:
        """Why it is not COMPLETE, where it is terminal and somebody said why."""
        self._settle(0)
        return None if self._outcome is None else self._outcome.reason

    @property
    def attempts(self) -> int:
        """How often it was sent; more than once by a policy that has failures come again."""
        self._settle(0)
        return 1 if self._outcome is None else self._outcome.attempts

    @property
    def claim(self) -> int | None:
        """The ID of the claim check under which it is DEFERRED."""
        self._settle(0)
        return None if self._outcome is None else self._outcome.claim

    def fail(self, reason: str, *, code: int = ErrorCode.INTERNAL_ERROR) -> None:
        """Give it up: its stream is reset and its status becomes FAILED, unless it is terminal already.

        Args:
            reason: Why, for the peer's logs and the receipt.
            code: The registry's number.
        """
        self._session.fail(self, code, reason)

    def _settle(self, timeout: float | None) -> bool:
        """Take the outcome, which is there to be taken once; several threads may want it."""
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
    """An entity of the peer: its header is here, its payload is here or coming.

    Read the payload, deliver it to where it is safe, then `complete` it: only then does the peer learn COMPLETE
    (decision 8). As a context manager it is completed at the end, or failed if an exception comes out. One that is
    forgotten has failed. The example of `Server` receives some.
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

    def __iter__(self) -> Iterator[bytes]:
        """Give the payload piece by piece, as it comes. The end comes only once length and checksum hold."""
        if self._rest:
            rest, self._rest = self._rest.tobytes(), memoryview(b"")
            yield rest
        while (piece := self._native.chunk(None)) is not None:
            yield piece

    def read(self, size: int = -1) -> bytes:
        """Read ``size`` bytes of the payload, or all that is left.

        Fewer bytes than asked for, or none, come only at the end, once length and checksum hold.

        Raises:
            PipeStreamError: ENTITY_INVALID for a wrong length, INTEGRITY_ERROR for a wrong checksum, another code
                where the peer gave the entity up. It has failed then.
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
        """Say that it is safely delivered; what was not read is read and checked first.

        An entity with children becomes COMPLETE once all of them are; it may be completed before they have come.

        Raises:
            PipeStreamError: Where the payload is wrong, or the session is over.
        """
        self._decided = True
        self._native.complete()

    def fail(self, reason: str, *, code: int = ErrorCode.INTERNAL_ERROR) -> None:
        """Reject it: its stream is stopped and its status becomes FAILED.

        Args:
            reason: Why, for the peer.
            code: The registry's number.
        """
        self._decided = True
        self._native.fail(code, reason)

    def skip(self, reason: str, *, code: int = ErrorCode.NO_ERROR) -> None:
        """Leave it out: its status becomes SKIPPED, which is no failure. Layer 2."""
        self._native.skip(code, reason)
        self._decided = True

    def defer(self, reason: str, *, life: float | None = None) -> ClaimCheck:
        """Set it aside: its status becomes DEFERRED, and its owner gets a claim check, which is stored before. Layer 2.

        Whoever knows claim check and session may redeem it later, once, and send the entity again; or this server
        settles it by `Server.settle`.

        Args:
            reason: Why, for the list of claim checks and the receipt.
            life: Seconds that the claim check is good for; by default, and at most, a day.

        Raises:
            PipeStreamError: It has ended meanwhile, or the claim check cannot be stored.
        """
        self._unread()
        claim = claim_of(self._native.defer(reason, life))
        self._decided = True
        return claim

    def wait(self, reason: YieldReason, state: bytes = b"", timeout: float | None = None) -> bytes | None:
        """Say that it waits, YIELDED, and wait until its owner has it go on: `Session.resume`. Layer 2.

        Args:
            reason: What for.
            state: What is needed to go on; it travels to the owner and back, sealed, so keep secrets out of it.
            timeout: Seconds. After them it still waits: `wait_resumed` goes on waiting.

        Returns:
            The state as it was given. None where bytes of the payload were read since, so that the state is not the
            entity's any more and the token was refused: processing begins anew, with the bytes that were read before.

        Raises:
            PipeStreamError: It has ended meanwhile; of kind "deadline" when the time is over.
        """
        self._unread()
        return self._native.wait(reason, state, timeout)

    def wait_resumed(self, timeout: float | None = None) -> bytes | None:
        """Go on waiting, after a `wait` that took too long. See there."""
        return self._native.wait_resumed(timeout)

    def _unread(self) -> None:
        """Give back what nobody was given: it is not processed."""
        if self._rest:
            self._native.unread(self._rest.tobytes())
            self._rest = memoryview(b"")

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Complete it, or fail it where an exception came; neither if that was done already."""
        if self._decided:
            return
        if kind is None:
            self.complete()
            return
        # The exception may be that it has ended.
        with suppress(PipeStreamError):
            self.fail(f"the receiver failed: {kind.__name__}")
