"""What happens in a session, as `Session.events` tells it."""

from dataclasses import dataclass

from penstock import _core
from penstock.pipestream._codes import Status
from penstock.pipestream._frames import Agreement, Barrier, Checkpoint, ScopeDigest
from penstock.pipestream._keys import EntityKey, Reason, ScopeKey

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
    """Both CAPABILITIES have come."""

    agreement: Agreement


@dataclass(frozen=True, slots=True)
class StatusEvent:
    """A STATUS frame was sent or received (heartbeats excepted)."""

    key: EntityKey
    status: Status
    depth: int
    cursor: int | None
    by_peer: bool


@dataclass(frozen=True, slots=True)
class GatheredEvent:
    """Everything below a received entity is terminal; ``key`` is None for the peer's root scope."""

    key: EntityKey | None
    scope: ScopeKey
    digest: ScopeDigest | None
    outcome: Status


@dataclass(frozen=True, slots=True)
class ResolvedEvent:
    """An entity has its terminal status; ``owned`` says whether we sent it."""

    key: EntityKey
    parent_id: int
    status: Status
    reason: Reason | None
    owned: bool


@dataclass(frozen=True, slots=True)
class ReleasedEvent:
    """The peer released one of our scopes; its digest equals ours."""

    scope: ScopeKey
    parent: EntityKey | None
    depth: int
    digest: ScopeDigest


@dataclass(frozen=True, slots=True)
class DigestEvent:
    """A SCOPE_DIGEST frame was sent or received."""

    digest: ScopeDigest
    by_peer: bool


@dataclass(frozen=True, slots=True)
class BarrierEvent:
    """A BARRIER frame was sent or received."""

    barrier: Barrier
    by_peer: bool


@dataclass(frozen=True, slots=True)
class CheckpointEvent:
    """A checkpoint was answered, ours by the peer or the peer's by us."""

    checkpoint: Checkpoint
    ours: bool


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """An error of an entity, or the error that closes the connection."""

    reason: Reason
    scope_id: int | None
    entity_id: int | None
    by_peer: bool


@dataclass(frozen=True, slots=True)
class ClosedEvent:
    """The session is over: the last event."""

    reason: Reason
    by_peer: bool


@dataclass(frozen=True, slots=True)
class LostEvents:
    """Nobody took events for so long that these were dropped, the oldest first."""

    count: int


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
            return ResolvedEvent(key, event["parent_id"], status, reason, event["owned"])
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
        case "internal":
            return None
