"""What happens in a session, as `Session.events` tells it.

>>> event = ClosedEvent(Reason(0, "PIPESTREAM_NO_ERROR", ""), by_peer=True)
>>> match event:
...     case ClosedEvent(reason, by_peer):
...         print(reason.code, by_peer)
0 True
"""

from dataclasses import dataclass

from penstock import _core
from penstock.pipestream._codes import ResolutionState, Status, YieldReason
from penstock.pipestream._frames import Agreement, Barrier, Checkpoint, ScopeDigest
from penstock.pipestream._keys import EntityKey, Reason, ScopeKey
from penstock.pipestream._messages import ClaimCheck

__all__ = [
    "AgreedEvent",
    "BarrierEvent",
    "CheckpointEvent",
    "ClosedEvent",
    "DigestEvent",
    "ErrorEvent",
    "Event",
    "GatheredEvent",
    "LostEvents",
    "ReleasedEvent",
    "ResolvedEvent",
    "StatusEvent",
]


@dataclass(frozen=True, slots=True)
class AgreedEvent:
    """Both CAPABILITIES have come (section 3.4, decision 1)."""

    agreement: Agreement
    """What both ends keep to."""


@dataclass(frozen=True, slots=True)
class StatusEvent:
    """A STATUS frame was sent or received, heartbeats excepted (section 6.2, decision 8)."""

    key: EntityKey
    """The entity."""
    status: Status
    """Its new status."""
    depth: int
    """The depth of its scope, 0 to 7."""
    cursor: int | None
    """The scope's new cursor, if the status advances it."""
    by_peer: bool
    """Whether the peer sent the frame."""


@dataclass(frozen=True, slots=True)
class GatheredEvent:
    """Everything below a received entity is terminal (decision 11)."""

    key: EntityKey | None
    """The entity; None for the peer's root scope."""
    scope: ScopeKey
    """The scope of its children; at layer 0 its own."""
    digest: ScopeDigest | None
    """The scope's digest; None for an entity at layer 0."""
    outcome: Status
    """COMPLETE, or FAILED where a child is not COMPLETE."""


@dataclass(frozen=True, slots=True)
class ResolvedEvent:
    """An entity has its terminal status (decision 8)."""

    key: EntityKey
    """The entity."""
    parent_id: int
    """Its parent on the wire; 0 for a root."""
    status: Status
    """The status, which stands."""
    reason: Reason | None
    """Why it is not COMPLETE, where somebody said why."""
    owned: bool
    """Whether we sent it."""
    failures: int = 0
    """How many attempts at it had failed before its last one (layer 2)."""


@dataclass(frozen=True, slots=True)
class ReleasedEvent:
    """The peer released one of our scopes; its digest equals ours (decision 11)."""

    scope: ScopeKey
    """The scope."""
    parent: EntityKey | None
    """The entity whose children it had; None for our root scope."""
    depth: int
    """Its depth, 0 to 7."""
    digest: ScopeDigest
    """Counts and Merkle root, on which both ends agree."""


@dataclass(frozen=True, slots=True)
class DigestEvent:
    """A SCOPE_DIGEST frame was sent or received (section 6.3)."""

    digest: ScopeDigest
    """The frame."""
    by_peer: bool
    """Whether the peer sent it."""


@dataclass(frozen=True, slots=True)
class BarrierEvent:
    """A BARRIER frame was sent or received (section 6.4)."""

    barrier: Barrier
    """The frame."""
    by_peer: bool
    """Whether the peer sent it."""


@dataclass(frozen=True, slots=True)
class CheckpointEvent:
    """A checkpoint was answered (section 9.3, decision 13)."""

    checkpoint: Checkpoint
    """The answer."""
    ours: bool
    """Whether we asked and the peer answered."""


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """An error of an entity, or the error that closes the connection (decision 14)."""

    reason: Reason
    """Code and words."""
    scope_id: int | None
    """The scope on the wire that it is about, if it is about one."""
    entity_id: int | None
    """The entity on the wire that it is about, if it is about one."""
    by_peer: bool
    """Whether the peer sent it."""


@dataclass(frozen=True, slots=True)
class ClosedEvent:
    """The session is over (decision 17): the last event."""

    reason: Reason
    """Code 0 after a graceful close."""
    by_peer: bool
    """Whether the peer ended it."""


@dataclass(frozen=True, slots=True)
class YieldedEvent:
    """The peer waits with an entity of ours: `Session.resume` has it go on (section 6.5.1). Layer 2."""

    key: EntityKey
    """The entity."""
    reason: YieldReason
    """What it waits for."""
    token: bytes
    """What to go on with: good once, in this session."""


@dataclass(frozen=True, slots=True)
class ResumedEvent:
    """An entity that waited goes on. Layer 2."""

    key: EntityKey
    """The entity."""


@dataclass(frozen=True, slots=True)
class DeferredEvent:
    """The peer has set an entity of ours aside under a claim check; its end follows (section 6.5.2). Layer 2."""

    key: EntityKey
    """The entity."""
    claim: ClaimCheck
    """The claim check."""


@dataclass(frozen=True, slots=True)
class AttemptFailedEvent:
    """An attempt to bring an entity has failed, and it may come again (decision 19). Layer 2."""

    key: EntityKey
    """The entity."""
    failures: int
    """How many attempts have failed."""
    reason: Reason
    """Why."""
    owned: bool
    """Whether it is one of ours, which is then sent again after the delay of its parent's policy."""


@dataclass(frozen=True, slots=True)
class OutcomeEvent:
    """What a policy made of an entity with children, all of which have ended (section 9.2). Layer 2."""

    key: EntityKey
    """The entity."""
    state: ResolutionState
    """RESOLVED, PARTIAL or FAILED."""
    owned: bool
    """Whether it is one of ours."""


@dataclass(frozen=True, slots=True)
class LostEvents:
    """Nobody took events for so long that these were dropped, the oldest first."""

    count: int
    """How many."""


Event = (
    AgreedEvent
    | StatusEvent
    | GatheredEvent
    | ResolvedEvent
    | ReleasedEvent
    | DigestEvent
    | BarrierEvent
    | CheckpointEvent
    | ErrorEvent
    | ClosedEvent
    | YieldedEvent
    | ResumedEvent
    | DeferredEvent
    | AttemptFailedEvent
    | OutcomeEvent
    | LostEvents
)
"""Anything that `Session.events` gives; match on the class."""


def reason_of(fields: "_core._ReasonFields | None") -> Reason | None:
    """Make the dataclass from what the core gave."""
    return None if fields is None else Reason(**fields)


def _key(fields: tuple[int, int, int, int] | None) -> EntityKey | None:
    return None if fields is None else EntityKey(*fields)


def event_of(event: "_core._EventFields") -> Event | None:
    """Make the dataclass from what the core gave; None for what concerns the driver only."""
    match event["kind"]:
        case "agreed":
            return AgreedEvent(Agreement(**event["agreement"]))
        case "status":
            key, status = EntityKey(*event["key"]), Status(event["status"])
            return StatusEvent(key, status, event["depth"], event["cursor"], event["by_peer"])
        case "gathered":
            digest = None if event["digest"] is None else ScopeDigest(**event["digest"])
            return GatheredEvent(_key(event["key"]), ScopeKey(*event["scope"]), digest, Status(event["outcome"]))
        case "resolved":
            key, status, reason = EntityKey(*event["key"]), Status(event["status"]), reason_of(event["reason"])
            return ResolvedEvent(key, event["parent_id"], status, reason, event["owned"], event["failures"])
        case "released":
            scope, parent = ScopeKey(*event["scope"]), _key(event["parent"])
            return ReleasedEvent(scope, parent, event["depth"], ScopeDigest(**event["digest"]))
        case "digest":
            return DigestEvent(ScopeDigest(**event["digest"]), event["by_peer"])
        case "barrier":
            return BarrierEvent(Barrier(**event["barrier"]), event["by_peer"])
        case "checkpoint":
            return CheckpointEvent(Checkpoint(**event["checkpoint"]), event["ours"])
        case "error":
            return ErrorEvent(Reason(**event["reason"]), event["scope_id"], event["entity_id"], event["by_peer"])
        case "closed":
            return ClosedEvent(Reason(**event["reason"]), event["by_peer"])
        case "yielded":
            return YieldedEvent(EntityKey(*event["key"]), YieldReason(event["reason"]), event["token"])
        case "resumed":
            return ResumedEvent(EntityKey(*event["key"]))
        case "deferred":
            claim = ClaimCheck(id=event["claim_id"], expiry_timestamp=event["expiry_timestamp"])
            return DeferredEvent(EntityKey(*event["key"]), claim)
        case "attempt_failed":
            reason = Reason(**event["reason"])
            return AttemptFailedEvent(EntityKey(*event["key"]), event["failures"], reason, event["owned"])
        case "outcome":
            return OutcomeEvent(EntityKey(*event["parent"]), ResolutionState[event["state"]], event["owned"])
        case "internal":
            return None
