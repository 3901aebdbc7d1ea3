"""PipeStream over QUIC for asyncio: the same names as `penstock.pipestream`, with coroutine methods.

`Server`, `Session`, `Scope`, `SinkReader` and the entities are defined here. Frames, events and all other values are
those of `penstock.pipestream`.
"""

from penstock._core import EntityIdSpace
from penstock._pipestream_limits import Limits
from penstock.aio.pipestream._entity import Entity, ReceivedEntity, SentEntity
from penstock.aio.pipestream._reader import SinkReader
from penstock.aio.pipestream._scope import Scope
from penstock.aio.pipestream._server import Server
from penstock.aio.pipestream._session import Session
from penstock.pipestream import ROW_SCHEMA
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
    AttemptFailedEvent,
    BarrierEvent,
    CheckpointEvent,
    ClosedEvent,
    DeferredEvent,
    DigestEvent,
    ErrorEvent,
    Event,
    GatheredEvent,
    LostEvents,
    OutcomeEvent,
    ReleasedEvent,
    ResolvedEvent,
    ResumedEvent,
    StatusEvent,
    YieldedEvent,
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
    SetAside,
    StoppingPointValidation,
)
from penstock.pipestream._pipe_doc import OwnershipContext, PipeDoc
from penstock.pipestream._policy import CompletionPolicy
from penstock.pipestream._reader import (
    ClosedSession,
    Piece,
)
from penstock.pipestream._references import (
    REFERENCE_TYPE,
    EncryptionMetadata,
    FileStorageReference,
    References,
)
from penstock.pipestream._server import (
    ServerCounters,
)
from penstock.pipestream._uri import PipeStreamURI

__all__ = [
    "REFERENCE_TYPE",
    "ROW_SCHEMA",
    "AgreedEvent",
    "Agreement",
    "AttemptFailedEvent",
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
    "DeferredEvent",
    "DigestEvent",
    "EncryptionMetadata",
    "Entity",
    "EntityHeader",
    "EntityIdSpace",
    "EntityKey",
    "ErrorCode",
    "ErrorEvent",
    "Event",
    "FailureAction",
    "FileStorageReference",
    "GatheredEvent",
    "Limits",
    "LostEvents",
    "Manifest",
    "OutcomeEvent",
    "OwnershipContext",
    "Piece",
    "PipeDoc",
    "PipeStreamURI",
    "Reason",
    "ReceivedEntity",
    "References",
    "ReleasedEvent",
    "Resolution",
    "ResolutionState",
    "ResolvedEvent",
    "ResumedEvent",
    "Scope",
    "ScopeDigest",
    "ScopeKey",
    "SentEntity",
    "Server",
    "ServerCounters",
    "Session",
    "SetAside",
    "SinkReader",
    "Status",
    "StatusEvent",
    "StatusFrame",
    "StoppingPointValidation",
    "YieldExtension",
    "YieldReason",
    "YieldedEvent",
    "merkle_root",
]
