"""The events of a session, which `Session.events` yields.

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
    """Both ends have sent CAPABILITIES (PipeStream, section 3.4)."""

    agreement: Agreement
    """The agreed layer and limits."""


@dataclass(frozen=True, slots=True)
class StatusEvent:
    """A STATUS frame other than a heartbeat was sent or received (PipeStream, section 6.2)."""

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
    """All descendants of a received entity are terminal."""

    key: EntityKey | None
    """The entity; None for the peer's root scope."""
    scope: ScopeKey
    """The scope of its children; at layer 0 the entity's own scope."""
    digest: ScopeDigest | None
    """The scope's digest; None for an entity at layer 0."""
    outcome: Status
    """COMPLETE, or FAILED if a child is not COMPLETE."""


@dataclass(frozen=True, slots=True)
class ResolvedEvent:
    """An entity has become terminal."""

    key: EntityKey
    """The entity."""
    parent_id: int
    """The parent's ID on the wire; 0 for a root."""
    status: Status
    """The terminal status."""
    reason: Reason | None
    """Why the entity is not COMPLETE, if a reason is known."""
    owned: bool
    """Whether this end sent the entity."""
    failures: int = 0
    """The number of failed attempts before the last one (layer 2)."""


@dataclass(frozen=True, slots=True)
class ReleasedEvent:
    """The peer has released a scope of this end, and both ends have the same digest."""

    scope: ScopeKey
    """The scope."""
    parent: EntityKey | None
    """The parent of the scope's entities; None for the root scope."""
    depth: int
    """The scope's depth, 0 to 7."""
    digest: ScopeDigest
    """The counts and the Merkle root."""


@dataclass(frozen=True, slots=True)
class DigestEvent:
    """A SCOPE_DIGEST frame was sent or received (PipeStream, section 6.3)."""

    digest: ScopeDigest
    """The frame."""
    by_peer: bool
    """Whether the peer sent the frame."""


@dataclass(frozen=True, slots=True)
class BarrierEvent:
    """A BARRIER frame was sent or received (PipeStream, section 6.4)."""

    barrier: Barrier
    """The frame."""
    by_peer: bool
    """Whether the peer sent the frame."""


@dataclass(frozen=True, slots=True)
class CheckpointEvent:
    """A checkpoint was answered (PipeStream, section 9.3)."""

    checkpoint: Checkpoint
    """The answer."""
    ours: bool
    """Whether this end asked and the peer answered."""


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """An error of an entity, or the error that closes the connection."""

    reason: Reason
    """The code and the message."""
    scope_id: int | None
    """The ID of the scope on the wire, if the error concerns one."""
    entity_id: int | None
    """The ID of the entity on the wire, if the error concerns one."""
    by_peer: bool
    """Whether the peer sent the frame."""


@dataclass(frozen=True, slots=True)
class ClosedEvent:
    """The session is over; this is the last event."""

    reason: Reason
    """Why the session is over; code 0 after a graceful close."""
    by_peer: bool
    """Whether the peer ended the session."""


@dataclass(frozen=True, slots=True)
class YieldedEvent:
    """The peer has paused an entity of this end until `Session.resume` (PipeStream, section 6.5.1). Layer 2."""

    key: EntityKey
    """The entity."""
    reason: YieldReason
    """What the entity waits for."""
    token: bytes
    """The token for `Session.resume`, valid once, in this session."""


@dataclass(frozen=True, slots=True)
class ResumedEvent:
    """A paused entity has resumed. Layer 2."""

    key: EntityKey
    """The entity."""


@dataclass(frozen=True, slots=True)
class DeferredEvent:
    """The peer has deferred an entity of this end; its `ResolvedEvent` follows (PipeStream, section 6.5.2). Layer 2."""

    key: EntityKey
    """The entity."""
    claim: ClaimCheck
    """The claim check."""


@dataclass(frozen=True, slots=True)
class AttemptFailedEvent:
    """An attempt to transfer an entity has failed, and it may be sent again. Layer 2."""

    key: EntityKey
    """The entity."""
    failures: int
    """The number of attempts that have failed."""
    reason: Reason
    """Why the attempt has failed."""
    owned: bool
    """Whether this end sent the entity; it is then sent again after the delay of its parent's policy."""


@dataclass(frozen=True, slots=True)
class OutcomeEvent:
    """A policy has decided the outcome of an entity whose children are terminal (PipeStream, section 9.2). Layer 2."""

    key: EntityKey
    """The entity."""
    state: ResolutionState
    """The outcome: RESOLVED, PARTIAL or FAILED."""
    owned: bool
    """Whether this end sent the entity."""


@dataclass(frozen=True, slots=True)
class LostEvents:
    """The oldest events were dropped, because events were not read in time."""

    count: int
    """The number of dropped events."""


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
"""Any event of `Session.events`; match on the class."""


def reason_of(fields: "_core._ReasonFields | None") -> Reason | None:
    """Return the dataclass for a reason of the core."""
    return None if fields is None else Reason(**fields)


def _key(fields: tuple[int, int, int, int] | None) -> EntityKey | None:
    return None if fields is None else EntityKey(*fields)


def event_of(event: "_core._EventFields") -> Event | None:
    """Return the dataclass for an event of the core; None if it concerns only the driver."""
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
