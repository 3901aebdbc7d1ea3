"""PipeStream over QUIC, layers 0 to 2: clients send entities and scopes, servers receive them.

`Session.connect` and `Server` are the two ends of a connection. Frames and messages are values with ``encode`` and
``decode``. `EntityIdSpace`, `Manifest` and `merkle_root` are parts of the protocol that are useful on their own.
"""

from typing import TYPE_CHECKING

from penstock._core import EntityIdSpace
from penstock._pipestream_limits import Limits
from penstock.pipestream._codes import (
    CompletionMode,
    ErrorCode,
    FailureAction,
    ResolutionState,
    Status,
    YieldReason,
)
from penstock.pipestream._entity import (
    Entity,
    ReceivedEntity,
    SentEntity,
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
    SinkReader,
)
from penstock.pipestream._references import (
    REFERENCE_TYPE,
    EncryptionMetadata,
    FileStorageReference,
    References,
)
from penstock.pipestream._scope import Scope
from penstock.pipestream._server import (
    Server,
    ServerCounters,
)
from penstock.pipestream._session import Session
from penstock.pipestream._uri import PipeStreamURI

if TYPE_CHECKING:
    import pyarrow as pa

    ROW_SCHEMA: pa.Schema
    """The columns of a sink's rows, one row for each entity: ``session``, ``scope``, ``entity``, ``parent`` (null for a
    root), ``layer``, ``type`` (the content type), ``bytes`` and ``sha256`` (null if no payload was verified),
    ``status``, ``reason``, ``document`` and ``path`` (from the metadata ``penstock.document`` and ``penstock.path``),
    ``metadata``, ``file`` (in the sink, null without a payload), ``content``."""

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


def __getattr__(name: str) -> "pa.Schema":
    """Make the schema at its first use: importing Arrow takes a third of the start of a command that reads no rows."""
    if name != "ROW_SCHEMA":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from penstock._core import row_schema

    found: pa.Schema = row_schema()
    globals()[name] = found
    return found
