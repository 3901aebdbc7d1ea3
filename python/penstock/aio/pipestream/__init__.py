"""PipeStream over QUIC for asyncio: the names of `penstock.pipestream`, with methods to be awaited.

`Server`, `Session`, `Scope`, `SinkReader` and the entities are of this module; frames, events and everything else that
is a value are those of `penstock.pipestream` itself.
"""

from penstock._core import EntityIdSpace
from penstock.aio.pipestream._entity import Entity, ReceivedEntity, SentEntity
from penstock.aio.pipestream._reader import SinkReader
from penstock.aio.pipestream._scope import Scope
from penstock.aio.pipestream._server import Server
from penstock.aio.pipestream._session import Session
from penstock.pipestream._codes import (
    CompletionMode,
    ErrorCode,
    FailureAction,
    ResolutionState,
    Status,
    YieldReason,
)
from penstock.pipestream._events import (
    AgreedEvent,
    BarrierEvent,
    CheckpointEvent,
    ClosedEvent,
    DigestEvent,
    ErrorEvent,
    Event,
    GatheredEvent,
    LostEvents,
    ReleasedEvent,
    ResolvedEvent,
    StatusEvent,
)
from penstock.pipestream._frames import (
    Agreement,
    Barrier,
    Capabilities,
    Checkpoint,
    ChunkInfo,
    EntityHeader,
    ScopeDigest,
    StatusFrame,
    YieldExtension,
)
from penstock.pipestream._keys import (
    EntityKey,
    Reason,
    ScopeKey,
)
from penstock.pipestream._manifest import (
    Completion,
    Manifest,
    Resolution,
    merkle_root,
)
from penstock.pipestream._messages import (
    ClaimCheck,
    CompletionPolicy,
    StoppingPointValidation,
)
from penstock.pipestream._reader import (
    ROW_SCHEMA,
    ClosedSession,
    Piece,
)
from penstock.pipestream._server import (
    ServerCounters,
)

__all__ = [
    "ROW_SCHEMA",
    "AgreedEvent",
    "Agreement",
    "Barrier",
    "BarrierEvent",
    "Capabilities",
    "Checkpoint",
    "CheckpointEvent",
    "ChunkInfo",
    "ClaimCheck",
    "ClosedEvent",
    "ClosedSession",
    "Completion",
    "CompletionMode",
    "CompletionPolicy",
    "DigestEvent",
    "Entity",
    "EntityHeader",
    "EntityIdSpace",
    "EntityKey",
    "ErrorCode",
    "ErrorEvent",
    "Event",
    "FailureAction",
    "GatheredEvent",
    "LostEvents",
    "Manifest",
    "Piece",
    "Reason",
    "ReceivedEntity",
    "ReleasedEvent",
    "Resolution",
    "ResolutionState",
    "ResolvedEvent",
    "Scope",
    "ScopeDigest",
    "ScopeKey",
    "SentEntity",
    "Server",
    "ServerCounters",
    "Session",
    "SinkReader",
    "Status",
    "StatusEvent",
    "StatusFrame",
    "StoppingPointValidation",
    "YieldExtension",
    "YieldReason",
    "merkle_root",
]
