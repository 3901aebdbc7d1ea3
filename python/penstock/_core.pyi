"""The Rust core of penstock, as stubtest checks it.

It is longer than 600 lines because a module has one stub, and the core is one module.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Generic, Literal, Protocol, Self, TypedDict, TypeVar, final

import pyarrow as pa

from penstock._privacy import Manner
from penstock._sending import Identity
from penstock.documents import Limits, Source
from penstock.lumberjack._options import ReceiveOptions, SendOptions
from penstock.lumberjack._spool import SpoolOptions, SpoolReaderOptions
from penstock.pimp import _options as pimp
from penstock.pipestream import (
    Barrier,
    Capabilities,
    Checkpoint,
    ClaimCheck,
    CompletionPolicy,
    EntityHeader,
    FileStorageReference,
    PipeDoc,
    ScopeDigest,
    StatusFrame,
)
from penstock.pipestream._connect import ConnectOptions
from penstock.pipestream._fields import PathLike, Payload
from penstock.pipestream._reader import ReaderOptions
from penstock.pipestream._server import ServeOptions
from penstock.pipestream._session import Draft
from penstock.quicx._options import ReachOptions, StartOptions
from penstock.vgi.external import ExternalStorage
from penstock.vgi.external_fetch import FetchConfig
from penstock.vgi.http._client import HttpRetryConfig
from penstock.vgi.http._options import CoreOptions
from penstock.vgi.rpc._common import AuthContext

__all__ = [
    "Content",
    "ContentTree",
    "Dehydrator",
    "DocumentOutcome",
    "DocumentSender",
    "EntityIdSpace",
    "Futures",
    "IncomingEntity",
    "LumberjackBatch",
    "LumberjackReceiver",
    "LumberjackSender",
    "Manifest",
    "Operation",
    "PimpAsked",
    "PimpBuffer",
    "PimpConsumer",
    "PimpJob",
    "PimpSender",
    "PimpTriggerServer",
    "QuicxBlock",
    "QuicxDaemon",
    "QuicxPool",
    "QuicxProducer",
    "QuicxWorker",
    "RowSender",
    "SentDocument",
    "Server",
    "Session",
    "SinkReader",
    "SinkRows",
    "Spool",
    "SpoolReader",
    "SpoolRows",
    "VgiAccepted",
    "VgiCall",
    "VgiClient",
    "VgiClientStream",
    "VgiConnection",
    "VgiExternal",
    "VgiFetcher",
    "VgiHttp",
    "VgiHttpCall",
    "VgiHttpClient",
    "VgiHttpClientStream",
    "VgiHttpServer",
    "VgiListener",
    "VgiMetrics",
    "VgiProtocol",
    "VgiSegment",
    "VgiServer",
    "VgiStop",
    "VgiStore",
    "VgiTable",
    "VgiTls",
    "__version__",
    "check_reference",
    "column",
    "decode_barrier",
    "decode_capabilities",
    "decode_checkpoint",
    "decode_claim",
    "decode_header",
    "decode_pipe_doc",
    "decode_policy",
    "decode_reference",
    "decode_scope_digest",
    "decode_status",
    "default_limits",
    "divide",
    "doc_id_of_key",
    "document_key",
    "encode_barrier",
    "encode_capabilities",
    "encode_checkpoint",
    "encode_claim",
    "encode_header",
    "encode_pipe_doc",
    "encode_policy",
    "encode_reference",
    "encode_scope_digest",
    "encode_status",
    "event_schema",
    "init_logging",
    "lumberjack_close",
    "lumberjack_flush",
    "lumberjack_listen",
    "lumberjack_next",
    "lumberjack_open",
    "lumberjack_send_column",
    "lumberjack_send_json",
    "lumberjack_send_maps",
    "lumberjack_shutdown",
    "make_uri",
    "merkle_root",
    "negotiate",
    "parse_uri",
    "part_schema",
    "pimp_ask",
    "pimp_cancel",
    "pimp_check_sender",
    "pimp_close",
    "pimp_create",
    "pimp_delete",
    "pimp_describe",
    "pimp_end",
    "pimp_flush",
    "pimp_listen",
    "pimp_metadata",
    "pimp_next",
    "pimp_open",
    "pimp_send",
    "pimp_status",
    "pimp_take_over",
    "pimp_trigger",
    "pipe_doc_of_entry",
    "quicx_dead",
    "quicx_dead_list",
    "quicx_done_before",
    "quicx_next",
    "quicx_observe",
    "quicx_produce",
    "quicx_rest",
    "quicx_start",
    "quicx_stats",
    "quicx_stop",
    "quicx_submit",
    "quicx_submit_many",
    "quicx_verdict",
    "quicx_work",
    "reference_of_url",
    "reference_url",
    "row_schema",
    "split_key",
    "vgi_decode",
    "vgi_description_hash",
    "vgi_encode",
    "vgi_keys",
    "vgi_token_open",
    "vgi_token_seal",
    "write_certificates",
]

__version__: Final[str]

def init_logging(level: str, format: Literal["text", "json"]) -> None:  # noqa: A002
    """Send the logs of the Rust side to stderr; the first call of a process decides."""

# PipeStream: frames and messages. Encoders read the attributes of the dataclasses in penstock.pipestream; decoders
# give their fields by name.

@final
class _YieldFields(TypedDict):
    reason: int
    token: bytes

@final
class _ClaimExtensionFields(TypedDict):
    id: int
    expiry_timestamp: int

class _StatusFields(TypedDict):
    status: int
    entity_id: int
    scope_id: int
    depth: int
    cursor: int | None
    extension: _YieldFields | _ClaimExtensionFields | None

class _DigestFields(TypedDict):
    scope_id: int
    processed: int
    succeeded: int
    failed: int
    deferred: int
    merkle_root: bytes

class _BarrierFields(TypedDict):
    barrier_id: int
    parent_id: int
    released: bool

class _CapabilitiesFields(TypedDict):
    layer0: bool
    layer1: bool
    layer2: bool
    max_scope_depth: int | None
    max_entities_per_scope: int | None
    max_window_size: int | None

class _AgreementFields(TypedDict):
    layer: int
    max_scope_depth: int
    max_entities_per_scope: int
    max_window_size: int

class _CheckpointFields(TypedDict):
    checkpoint_id: str
    sequence_number: int
    checkpoint_entity_id: int
    scope_id: int
    flags: int
    timeout_ms: int

class _ChunkFields(TypedDict):
    total_chunks: int
    chunk_index: int
    chunk_offset: int

class _PolicyFields(TypedDict):
    mode: int | None
    max_retries: int | None
    retry_delay_ms: int | None
    timeout_ms: int | None
    min_success_ratio: float | None
    on_timeout: int | None
    on_failure: int | None

class _HeaderFields(TypedDict):
    entity_id: int
    parent_id: int
    scope_id: int
    layer: int
    content_type: str
    payload_length: int
    checksum: bytes
    metadata: dict[str, str]
    chunk_info: _ChunkFields | None
    completion_policy: _PolicyFields | None

class _ValidationFields(TypedDict):
    state_checksum: bytes | None
    bytes_processed: int | None
    children_complete: int | None
    children_total: int | None
    is_resumable: bool | None
    checkpoint_ref: str | None

class _ClaimFields(TypedDict):
    id: int | None
    session: str | None
    scope: int | None
    entity: int | None
    expiry_timestamp: int | None
    status: int
    validation: _ValidationFields | None
    file: str | None

class _ClaimRow(TypedDict):
    claim_id: int
    session: str | None
    scope_id: int
    entity_id: int
    status: int
    expiry_timestamp: int
    reason: str
    document: str | None
    path: str | None
    content_type: str | None
    bytes: int | None
    sha256: str | None
    file: str | None

class _ResolutionFields(TypedDict):
    scope_id: int
    parent_id: int
    state: int
    children: int
    succeeded: int
    failed: int
    deferred: int

class _EncryptionFields(TypedDict):
    algorithm: str | None
    key_provider: str | None
    key_id: str | None
    wrapped_key: bytes | None
    iv: bytes | None
    context: dict[str, str]

class _ReferenceFields(TypedDict):
    provider: str | None
    bucket: str | None
    key: str | None
    region: str | None
    attrs: dict[str, str]
    encryption: _EncryptionFields | None

class _OwnerFields(TypedDict):
    owner_id: str | None
    group_id: str | None
    scopes: list[str]

class _PipeDocFields(TypedDict):
    doc_id: str
    entity_id: int
    ownership: _OwnerFields | None

def encode_pipe_doc(doc: PipeDoc) -> bytes: ...
def decode_pipe_doc(data: bytes) -> _PipeDocFields: ...
def pipe_doc_of_entry(entry: str, entity_id: int) -> _PipeDocFields: ...
def doc_id_of_key(key: str) -> str | None:
    """Return the document ID of a receipt's key; None if it is no key."""

_UriParts = tuple[str, str, list[int], int | None]

def parse_uri(text: str) -> _UriParts: ...
def make_uri(
    authority: str, session_id: str, scope_path: list[int], entity_id: int | None
) -> tuple[str, _UriParts]: ...
def encode_reference(message: FileStorageReference) -> bytes: ...
def decode_reference(data: bytes) -> _ReferenceFields: ...
def check_reference(message: FileStorageReference, approved: list[str]) -> None: ...
def reference_of_url(url: str) -> _ReferenceFields: ...
def reference_url(message: FileStorageReference) -> str: ...
def split_key(key_id: str) -> tuple[str, str | None]: ...
def encode_status(frame: StatusFrame) -> bytes: ...
def decode_status(data: bytes) -> tuple[_StatusFields, int]: ...
def encode_scope_digest(frame: ScopeDigest) -> bytes: ...
def decode_scope_digest(data: bytes) -> tuple[_DigestFields, int]: ...
def encode_barrier(frame: Barrier) -> bytes: ...
def decode_barrier(data: bytes) -> tuple[_BarrierFields, int]: ...
def encode_capabilities(frame: Capabilities) -> bytes: ...
def decode_capabilities(data: bytes) -> tuple[_CapabilitiesFields, int]: ...
def negotiate(ours: Capabilities, peer: Capabilities) -> _AgreementFields: ...
def encode_checkpoint(frame: Checkpoint) -> bytes: ...
def decode_checkpoint(data: bytes) -> tuple[_CheckpointFields, int]: ...
def encode_header(header: EntityHeader) -> bytes: ...
def decode_header(data: bytes) -> tuple[_HeaderFields, int]: ...
def encode_policy(message: CompletionPolicy) -> bytes: ...
def decode_policy(data: bytes) -> _PolicyFields: ...
def encode_claim(message: ClaimCheck) -> bytes: ...
def decode_claim(data: bytes) -> _ClaimFields: ...
def merkle_root(leaves: list[tuple[int, int]]) -> bytes: ...

@final
class EntityIdSpace:
    """The IDs of one scope (section 9.1): which is assigned next, which are resolved, where the cursor stands.

    >>> ids = EntityIdSpace(2)
    >>> ids.assign(), ids.assign(), ids.assign()
    (1, 2, None)
    >>> ids.resolve(1), ids.cursor
    (True, 2)
    """

    def __new__(cls, max_window: int, *, last_assigned: int = 0, cursor: int = 1) -> EntityIdSpace:
        """Make a space where every ID from ``cursor`` to ``last_assigned`` is in flight; by default none is.

        Raises:
            PipeStreamError: A misuse, where the two are reserved or further apart than the window.
        """

    @property
    def cursor(self) -> int:
        """The lowest unresolved ID or, if there is none, the next unassigned one."""

    @property
    def last_assigned(self) -> int:
        """The ID assigned last; 0 at the start."""

    @property
    def next_id(self) -> int:
        """The ID that would be assigned next if the window allowed it."""

    @property
    def in_flight(self) -> int:
        """How many IDs lie from the cursor to the last assigned one."""

    @property
    def max_window(self) -> int:
        """The window as it is kept: at most 2,147,483,646."""

    @property
    def is_full(self) -> bool:
        """Whether the window allows no further ID."""

    def assign(self) -> int | None:
        """Return the next ID; None if the window is full (back-pressure)."""

    def resolve(self, entity_id: int) -> bool:
        """Mark an ID resolved and say whether the cursor moved. An ID that is not in flight changes nothing."""

    def is_unresolved(self, entity_id: int) -> bool:
        """Whether the ID is assigned and not resolved."""

    def advance_to(self, cursor: int) -> bool:
        """Move the cursor to where the peer says it is, which resolves every ID before it; say whether it moved.

        Raises:
            PipeStreamError: ENTITY_INVALID, where it is behind the cursor or beyond the next unassigned ID.
        """

    @staticmethod
    def distance(start: int, to: int) -> int:
        """Return ``(to - start) mod 0xFFFFFFFD``, the measure of window and cursor."""

    @staticmethod
    def ordinal_distance(start: int, to: int) -> int:
        """Return the number of assignments from one assignable ID to another."""

    @staticmethod
    def is_before(first: int, second: int) -> bool:
        """Whether ``first`` comes before ``second`` in circular order, or is it (section 9.3)."""

@final
class Manifest:
    """What `penstock.pipestream.Manifest` wraps; statuses and states are numbers."""

    def __new__(cls, max_entries: int, max_age: float, orphan_age: float, max_orphans: int) -> Manifest: ...
    def open(self, scope_id: int, parent_id: int) -> None: ...
    def add_child(self, scope_id: int, parent_id: int, child_id: int, status: int | None) -> None: ...
    def complete_child(
        self, scope_id: int, parent_id: int, child_id: int, status: int
    ) -> Literal["applied", "repeated", "orphaned"]: ...
    def seal(self, scope_id: int, parent_id: int) -> None: ...
    def pop_resolved(self) -> _ResolutionFields | None: ...
    def remove(self, scope_id: int, parent_id: int) -> bool: ...
    def expire(self) -> list[tuple[int, int]]: ...
    def children(self, scope_id: int, parent_id: int) -> list[tuple[int, int | None]]: ...
    def unresolved_count(self, scope_id: int, parent_id: int) -> int: ...
    def orphan_count(self) -> int: ...
    def contains(self, scope_id: int, parent_id: int) -> bool: ...
    def __len__(self) -> int: ...

# PipeStream: sessions. Keys are tuples: scope, use of the scope, entity, use of the entity.

_Key = tuple[int, int, int, int]
_Scope = tuple[int, int]

class _ReasonFields(TypedDict):
    code: int
    name: str
    message: str

class _TicketFields(TypedDict):
    key: _Key
    parent_id: int
    depth: int
    child_scope: _Scope | None

class _AgreedEvent(TypedDict):
    kind: Literal["agreed"]
    agreement: _AgreementFields

class _StatusEvent(TypedDict):
    kind: Literal["status"]
    key: _Key
    status: int
    depth: int
    cursor: int | None
    by_peer: bool

class _GatheredEvent(TypedDict):
    kind: Literal["gathered"]
    key: _Key | None
    scope: _Scope
    digest: _DigestFields | None
    outcome: int

class _ResolvedEvent(TypedDict):
    kind: Literal["resolved"]
    key: _Key
    parent_id: int
    status: int
    reason: _ReasonFields | None
    owned: bool
    failures: int

class _ReleasedEvent(TypedDict):
    kind: Literal["released"]
    scope: _Scope
    parent: _Key | None
    depth: int
    digest: _DigestFields

class _DigestEvent(TypedDict):
    kind: Literal["digest"]
    digest: _DigestFields
    by_peer: bool

class _BarrierEvent(TypedDict):
    kind: Literal["barrier"]
    barrier: _BarrierFields
    by_peer: bool

class _CheckpointEvent(TypedDict):
    kind: Literal["checkpoint"]
    checkpoint: _CheckpointFields
    ours: bool

class _ErrorEvent(TypedDict):
    kind: Literal["error"]
    reason: _ReasonFields
    scope_id: int | None
    entity_id: int | None
    by_peer: bool

class _ClosedEvent(TypedDict):
    kind: Literal["closed"]
    reason: _ReasonFields
    by_peer: bool

class _YieldedEvent(TypedDict):
    kind: Literal["yielded"]
    key: _Key
    reason: int
    token: bytes

class _DeferredEvent(TypedDict):
    kind: Literal["deferred"]
    key: _Key
    claim_id: int
    expiry_timestamp: int

class _AttemptFailedEvent(TypedDict):
    kind: Literal["attempt_failed"]
    key: _Key
    failures: int
    reason: _ReasonFields
    owned: bool

class _ResumedEvent(TypedDict):
    kind: Literal["resumed"]
    key: _Key

class _OutcomeEvent(TypedDict):
    kind: Literal["outcome"]
    parent: _Key
    state: Literal["ACTIVE", "RESOLVED", "PARTIAL", "FAILED"]
    owned: bool

class _InternalEvent(TypedDict):
    kind: Literal["internal"]

_EventFields = (
    _AgreedEvent
    | _StatusEvent
    | _GatheredEvent
    | _ResolvedEvent
    | _ReleasedEvent
    | _DigestEvent
    | _BarrierEvent
    | _CheckpointEvent
    | _ErrorEvent
    | _ClosedEvent
    | _YieldedEvent
    | _DeferredEvent
    | _AttemptFailedEvent
    | _ResumedEvent
    | _OutcomeEvent
    | _InternalEvent
)

class _CounterFields(TypedDict):
    connections_total: int
    connections_open: int
    refused: int
    entities: int
    completed: int
    failed: int
    abandoned: int
    skipped: int
    deferred: int
    retries: int
    yields: int
    reconnects: int
    claims: int
    bytes: int
    failures: list[tuple[int, int]]
    events_lost: int
    limits: list[tuple[str, int]]

def write_certificates(directory: PathLike) -> str: ...

@final
class Session:
    """What `penstock.pipestream.Session` wraps. Timeouts are in seconds; None means that one expired."""

    @staticmethod
    def connect(address: str, options: ConnectOptions) -> Session: ...
    def id(self) -> str: ...
    def resumed(self) -> bool: ...
    def closing(self) -> bool: ...
    def is_client(self) -> bool: ...
    def peer_address(self) -> str: ...
    def agreement(self) -> _AgreementFields: ...
    def is_closed(self) -> _ReasonFields | None: ...
    def send(self, draft: Draft, payload: Payload) -> _TicketFields: ...
    def announce_failed(self, draft: Draft, code: int, message: str) -> _TicketFields: ...
    def fail(self, key: _Key, code: int, message: str) -> None: ...
    def skip(self, key: _Key, code: int, message: str) -> None: ...
    def resume(self, key: _Key, token: bytes, timeout: float | None) -> _ReasonFields | None: ...
    def claim(self, id: int, timeout: float | None) -> _ClaimFields: ...  # noqa: A002
    def redeem(self, id: int, session: str, timeout: float | None) -> _ClaimFields: ...  # noqa: A002
    def end_children(self, parent: _Key) -> None: ...
    def end_root(self) -> None: ...
    def wait_resolved(
        self, key: _Key, timeout: float | None
    ) -> tuple[int, _ReasonFields | None, int, int | None] | None: ...
    def wait_released(self, scope: _Scope, timeout: float | None) -> _DigestFields | None: ...
    def checkpoint(self, scope: int, entity: int, timeout: float | None) -> _CheckpointFields: ...
    def events(self, max: int, timeout: float | None) -> tuple[list[_EventFields], int] | None: ...  # noqa: A002
    def next_entity(self, timeout: float | None) -> IncomingEntity | None: ...
    def close(self, timeout: float | None) -> _ReasonFields: ...
    def give_up(self, key: _Key, code: int, message: str) -> None: ...
    def leave(self, code: int, message: str) -> None: ...
    def abort(self, code: int, message: str) -> None: ...
    def closed(self, timeout: float | None) -> _ReasonFields | None: ...

@final
class IncomingEntity:
    """What `penstock.pipestream.ReceivedEntity` wraps."""

    def key(self) -> _Key: ...
    def header(self) -> _HeaderFields: ...
    def depth(self) -> int: ...
    def is_dehydrated(self) -> bool: ...
    def child_scope(self) -> _Scope | None: ...
    def parent(self) -> _Key | None: ...
    def chunk(self, timeout: float | None) -> bytes | None: ...
    def complete(self) -> None: ...
    def skip(self, code: int, message: str) -> None: ...
    def defer(self, message: str, life: float | None) -> _ClaimFields: ...
    def unread(self, data: bytes) -> None: ...
    def wait(self, reason: int, state: bytes, timeout: float | None) -> bytes | None: ...
    def wait_resumed(self, timeout: float | None) -> bytes | None: ...
    def fail(self, code: int, message: str) -> None: ...

@final
class Server:
    """What `penstock.pipestream.Server` wraps."""

    def __new__(cls, listen: str, options: ServeOptions) -> Server: ...
    def address(self) -> str: ...
    def fingerprint(self) -> str: ...
    def metrics_address(self) -> str | None: ...
    def counters(self) -> _CounterFields: ...
    def next_session(self, timeout: float | None) -> Session | None: ...
    def claims(self) -> list[_ClaimRow]: ...
    def open_claims(self) -> list[_ClaimRow]: ...
    def wait_claims(self, timeout: float | None) -> list[_ClaimRow] | None: ...
    def settle(self, id: int, status: int) -> None: ...  # noqa: A002
    def close(self, grace: float) -> None: ...

# Reading a sink

def row_schema() -> pa.Schema: ...

@final
class SinkReader:
    """What `penstock.pipestream.SinkReader` wraps."""

    def __new__(cls, options: ReaderOptions) -> SinkReader: ...
    def sessions(self) -> list[tuple[str, int, int]]: ...
    def follow(self, after: int, max: int) -> tuple[str, int, list[tuple[str, int, int]]]: ...  # noqa: A002
    def plan(
        self,
        session: str,
        start: int,
        max_bytes: int,
        rows: int,
        pieces: int,
        documents: set[str] | None = None,
        names: set[str] | None = None,
    ) -> tuple[list[tuple[int, int, int, int]], int | None]: ...
    def rows(self, session: str, start: int, end: int, max_content: int | None, batch_bytes: int) -> SinkRows: ...
    def claims(self) -> list[_ClaimRow]: ...
    def remove(self, session: str) -> None: ...

@final
class SinkRows:
    """Record batches of a piece; one is read while the last is worked on."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> pa.RecordBatch: ...

# PipeStream: asyncio

_T = TypeVar("_T")

@final
class Operation(Generic[_T]):
    """Something under way, for `penstock.aio`: polled by the loop's own thread."""

    @property
    def id(self) -> int: ...
    def poll(self) -> tuple[_T] | None: ...
    def cancel(self) -> None: ...

@final
class Futures:
    """The operations of one event loop. `ready` empties the pipe whose end is `fileno`."""

    def __new__(cls) -> Futures: ...
    def fileno(self) -> int: ...
    def ready(self) -> list[int]: ...
    def connect(self, address: str, options: ConnectOptions) -> Operation[Session]: ...
    def send(self, session: Session, draft: Draft, payload: Payload) -> Operation[_TicketFields]: ...
    def send_many(self, session: Session, items: list[tuple[Draft, Payload]]) -> Operation[list[_TicketFields]]: ...
    def announce_failed(self, session: Session, draft: Draft, code: int, message: str) -> Operation[_TicketFields]: ...
    def fail(self, session: Session, key: _Key, code: int, message: str) -> Operation[None]: ...
    def end_children(self, session: Session, parent: _Key) -> Operation[None]: ...
    def end_root(self, session: Session) -> Operation[None]: ...
    def skip(self, session: Session, key: _Key, code: int, message: str) -> Operation[None]: ...
    def resume(self, session: Session, key: _Key, token: bytes) -> Operation[_ReasonFields | None]: ...
    def claim(self, session: Session, id: int) -> Operation[_ClaimFields]: ...  # noqa: A002
    def redeem(self, session: Session, id: int, of: str) -> Operation[_ClaimFields]: ...  # noqa: A002
    def wait_resolved(
        self, session: Session, key: _Key
    ) -> Operation[tuple[int, _ReasonFields | None, int, int | None]]: ...
    def wait_released(self, session: Session, scope: _Scope) -> Operation[_DigestFields]: ...
    def checkpoint(
        self, session: Session, scope: int, entity: int, timeout: float | None
    ) -> Operation[_CheckpointFields]: ...
    def events(self, session: Session, max: int) -> Operation[tuple[list[_EventFields], int]]: ...  # noqa: A002
    def receive(self, session: Session) -> Operation[IncomingEntity | None]: ...
    def close(self, session: Session) -> Operation[_ReasonFields]: ...
    def closed(self, session: Session) -> Operation[_ReasonFields]: ...
    def chunk(self, entity: IncomingEntity) -> Operation[bytes | None]: ...
    def complete(self, entity: IncomingEntity) -> Operation[None]: ...
    def wait(self, entity: IncomingEntity, reason: int, state: bytes) -> Operation[bytes | None]: ...
    def wait_resumed(self, entity: IncomingEntity) -> Operation[bytes | None]: ...
    def defer(self, entity: IncomingEntity, message: str, life: float | None) -> Operation[_ClaimFields]: ...
    def wait_claims(self, server: Server) -> Operation[list[_ClaimRow] | None]: ...
    def settle(self, server: Server, id: int, status: int) -> Operation[None]: ...  # noqa: A002
    def listen(self, listen: str, options: ServeOptions) -> Operation[Server]: ...
    def accept(self, server: Server) -> Operation[Session | None]: ...
    def shutdown(self, server: Server, grace: float) -> Operation[None]: ...

# Lumberjack

class _ReceiverCounterFields(TypedDict):
    connections: int
    open: int
    refused: int
    handshakes_failed: int
    events: int
    bytes: int
    wire_bytes: int
    windows: int
    acknowledged: int
    held_bytes: int
    errors: list[tuple[str, int]]
    foreign: list[tuple[str, int]]
    peers: list[tuple[str, int, int]]

@final
class LumberjackReceiver:
    """What `penstock.lumberjack.Receiver` wraps. With `discard` it counts events, acknowledges and drops them."""

    def __new__(
        cls,
        listen: str,
        options: ReceiveOptions,
        schema: object = None,
        spool: PathLike | Spool | None = None,
        discard: bool = False,
    ) -> LumberjackReceiver: ...
    def address(self) -> str: ...
    def fingerprint(self) -> str | None: ...
    def metrics_address(self) -> str | None: ...
    def counters(self) -> _ReceiverCounterFields: ...
    def next_batch(self, timeout: float | None) -> LumberjackBatch | None: ...
    def reload(self) -> bool: ...
    def close(self, grace: float) -> None: ...

@final
class LumberjackBatch:
    """What `penstock.lumberjack.Batch` wraps."""

    def record_batch(self) -> pa.RecordBatch: ...
    def num_rows(self) -> int: ...
    def peer(self) -> str: ...
    def identity(self) -> str | None: ...
    def received(self) -> int: ...
    def ack(self) -> None: ...
    def is_acked(self) -> bool: ...

_Pairs = list[tuple[bytes, bytes]]

@final
class LumberjackSender:
    """What `penstock.lumberjack.Sender` wraps. What sends gives how many events were given since the beginning."""

    def __new__(cls, options: SendOptions) -> LumberjackSender: ...
    def send_json(self, events: list[bytes], wait: bool, timeout: float | None) -> int: ...
    def send_maps(self, events: list[_Pairs], wait: bool, timeout: float | None) -> int: ...
    def send_column(self, batch: pa.RecordBatch, column: str, wait: bool, timeout: float | None) -> int: ...
    def send_lines(
        self,
        text: bytes,
        map: bool,  # noqa: A002
        time: str,
        host: str,
        path: str | None,
        offset: int,
        stop: Callable[[], bool] | None,
    ) -> int | None: ...
    def has_failed(self) -> bool: ...
    def flush(self, events: int | None, timeout: float | None) -> None: ...
    def acknowledged(self) -> int: ...
    def abandon(self) -> None: ...
    def close(self, grace: float) -> None: ...

def lumberjack_listen(
    futures: Futures, listen: str, options: ReceiveOptions, schema: object = None, spool: PathLike | Spool | None = None
) -> Operation[LumberjackReceiver]: ...
def lumberjack_next(futures: Futures, receiver: LumberjackReceiver) -> Operation[LumberjackBatch | None]: ...
def lumberjack_shutdown(futures: Futures, receiver: LumberjackReceiver, grace: float) -> Operation[None]: ...
def lumberjack_open(futures: Futures, options: SendOptions) -> Operation[LumberjackSender]: ...
def lumberjack_send_json(
    futures: Futures, sender: LumberjackSender, events: list[bytes], wait: bool
) -> Operation[int]: ...
def lumberjack_send_maps(
    futures: Futures, sender: LumberjackSender, events: list[_Pairs], wait: bool
) -> Operation[int]: ...
def lumberjack_send_column(
    futures: Futures, sender: LumberjackSender, batch: pa.RecordBatch, column: str, wait: bool
) -> Operation[int]: ...
def lumberjack_flush(futures: Futures, sender: LumberjackSender) -> Operation[None]: ...
def lumberjack_close(futures: Futures, sender: LumberjackSender, grace: float) -> Operation[None]: ...

# Documents

@final
class _LimitFields(TypedDict):
    max_depth: int
    max_children: int
    children_per_mib: int
    max_inflated: int
    max_total_inflated: int
    max_ratio: int
    max_text: int
    max_markup: int
    part_seconds: float
    max_name: int
    pdf_memory: int

@final
class _PartFields(TypedDict):
    path: list[str]
    type: str
    sha256: str | None
    bytes: int | None
    reason: str | None
    text: str | None
    metadata: dict[str, str]
    depth: int
    container: bool
    content: Content | None

def default_limits() -> _LimitFields:
    """Return the limits of the Rust core, which `penstock.documents.Limits` repeats."""

def document_key(document: str, sha256: bytes) -> str:
    """Return the key of a document, 32 hex digits."""

def column(values: Sequence[Any], data_type: pa.DataType) -> pa.Array:
    """Return a column of these values, ``None`` as null."""

def part_schema(*, placed: bool = False, claims: bool = False) -> pa.Schema:
    """Return the schema of a document's rows, optionally with claim checks or all columns of receipts."""

class _Container(TypedDict):
    path: list[str]
    type: str
    sha256: str
    bytes: int

class _Division(TypedDict):
    chain: list[_Container]
    children: int
    inflated: int
    groups: list[tuple[int, int, int]]

class _Selected(Protocol):
    @property
    def digest(self) -> bytes: ...
    @property
    def bytes(self) -> int: ...
    @property
    def depth(self) -> int: ...
    @property
    def places(self) -> Sequence[tuple[int, int]]: ...

def divide(name: str, source: Source, limits: Limits, group_bytes: int) -> _Division | None:
    """Divide the children of a document into groups of about `group_bytes` bytes; None if it is better sent as one."""

@final
class Dehydrator(Iterator[_PartFields]):
    """What `penstock.documents.dehydrate` iterates."""

    def __new__(cls, name: str, source: Source, limits: Limits) -> Self: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> _PartFields: ...

@final
class Content:
    """The bytes of one part: in memory while they are few, else in a temporary file that goes when this does."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Read at most `size` bytes from `offset` on."""

    def size(self) -> int:
        """How many bytes there are."""

@final
class ContentTree:
    """The content root, part by part, in the receipt's order."""

    def __new__(cls) -> Self: ...
    def push(self, path: list[str], sha256: bytes | None, status: int) -> None:
        """Add a part."""

    def root(self) -> bytes:
        """The root over all parts so far."""

@final
class DocumentSender:
    """What `penstock.documents.DocumentSender` wraps."""

    def __new__(
        cls,
        session: Session,
        dehydrate: bool,
        limits: Limits,
        in_flight: int,
        text: bool,
        max_content: int,
        manner: Manner,
        policy: CompletionPolicy | None = None,
        authority: str | None = None,
    ) -> Self: ...
    def send(
        self, name: str, source: Source, previous: str | None = None, identity: Identity | None = None
    ) -> SentDocument: ...
    def send_some(
        self,
        name: str,
        source: Source,
        some: _Selected,
        previous: str | None = None,
        identity: Identity | None = None,
    ) -> SentDocument: ...
    def send_containers(
        self,
        name: str,
        chain: Sequence[_Container],
        children: int,
        incomplete: int,
        previous: str | None = None,
        identity: Identity | None = None,
    ) -> SentDocument: ...
    def stop(self) -> None: ...

class _RowTotals(TypedDict):
    rows: int
    bytes: int
    scopes: int
    failed: int
    left_out: int
    failures: list[tuple[str | None, str | None, int, str, str]]
    """Document, path as JSON, code, the code's name and message of the first rows that failed."""
    merkle_root: str | None

@final
class RowSender:
    """Sends record batches into a session that has no other sender, each row as an entity."""

    def __new__(cls, session: Session, metadata: dict[str, str], scopes: bool, tolerant: bool = False) -> Self: ...
    def send(self, batch: pa.RecordBatch) -> None: ...
    def finish(self) -> _RowTotals: ...
    def totals(self) -> _RowTotals: ...

@final
class SentDocument:
    """What `penstock.documents.SentDocument` wraps."""

    def wait(self, timeout: float | None) -> DocumentOutcome | None: ...

@final
class DocumentOutcome:
    """What `penstock.documents.DocumentResult` wraps."""

    @property
    def key(self) -> str: ...
    @property
    def content_root(self) -> str: ...
    def receipt(self, whole: bool) -> str: ...
    def group(self) -> str: ...
    def rows(
        self, start: int, max_rows: int, max_bytes: int, placed: bool, claims: bool
    ) -> tuple[pa.RecordBatch, int | None]: ...
    def counts(self) -> tuple[int, int]: ...

# The spool of a Lumberjack receiver. Pieces and positions are tuples of the fields of the dataclasses.

_PieceTuple = tuple[int, int, int, int, int, int]
_PositionTuple = tuple[int, int]

def event_schema() -> pa.Schema:
    """The columns of the raw layout, as a pyarrow schema."""

@final
class Spool:
    """A spool that is written."""

    def __new__(cls, options: SpoolOptions) -> Self: ...
    def id(self) -> str: ...
    def plan(
        self, start: _PositionTuple, until: _PositionTuple | None, rows: int, max_bytes: int, piece: int
    ) -> tuple[list[_PieceTuple], _PositionTuple]: ...
    def commit(self, reader: str, at: _PositionTuple) -> None: ...
    def counters(self) -> dict[str, int]: ...
    def serve(
        self, listen: str, read_key: str, development: Path, cert: Path | None = None, key: Path | None = None
    ) -> tuple[str, str]: ...
    def close(self) -> None: ...

@final
class SpoolReader:
    """A spool that is read."""

    def __new__(cls, options: SpoolReaderOptions) -> Self: ...
    def id(self) -> str: ...
    def plan(
        self, start: _PositionTuple, until: _PositionTuple | None, rows: int, max_bytes: int, piece: int
    ) -> tuple[list[_PieceTuple], _PositionTuple]: ...
    def commit(self, reader: str, at: _PositionTuple) -> None: ...
    def rows(self, piece: _PieceTuple, schema: pa.Schema | None = None, skip_damaged: bool = False) -> SpoolRows: ...

@final
class SpoolRows:
    """The rows of a piece, batch by batch."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> pa.RecordBatch: ...

_Value = object
"""What Python has a type for: bool, int, float, str, bytes, None; everything else is a `pa.Array` of length 1."""
_Annotated = tuple[pa.RecordBatch, dict[bytes, bytes] | None]

_PimpMetadata = tuple[str, Literal["identity", "base64"], Literal["none", "gzip"], int | None, str | None]
_PimpCreated = tuple[bool, str | None]

@final
class PimpBuffer:
    """What `penstock.pimp.Buffer` wraps."""

    def __new__(cls, listen: str, options: pimp.ServeOptions) -> PimpBuffer: ...
    def address(self) -> str: ...
    def fingerprint(self) -> str | None: ...
    def metrics_address(self) -> str | None: ...
    def close(self, grace: float) -> None: ...

class _PimpStatus(TypedDict):
    state: Literal["CREATED", "ACTIVE", "COMPLETED", "FAILED", "EXPIRED"]
    chunks: int
    bytes: int
    next_index: int
    created_at: int
    expires_at: int
    cancelled: bool
    sha256: str | None
    etag: str | None

@final
class PimpJob:
    """What `penstock.pimp.Job` wraps. What makes a job gives whether it is new, and its ETag."""

    def __new__(cls, url: str, options: pimp.ReachOptions) -> PimpJob: ...
    def url(self) -> str: ...
    def id(self) -> str: ...
    def create(self, key: str, ttl: int | None, read_key: str | None, timeout: float | None) -> _PimpCreated: ...
    def take_over(self, etag: str, key: str, new_key: str, timeout: float | None) -> _PimpCreated: ...
    def status(self, key: str | None, timeout: float | None) -> _PimpStatus: ...
    def cancel(self, key: str, timeout: float | None) -> bool: ...
    def delete(self, key: str, timeout: float | None) -> None: ...
    def write_chunks(
        self, key: str, chunks: list[tuple[int, str]], done: bool, failure: str | None, timeout: float | None
    ) -> bool: ...

@final
class PimpSender:
    """What `penstock.pimp.Sender` wraps."""

    def __new__(cls, job: PimpJob, key: str, options: pimp.WriteOptions) -> PimpSender: ...
    def progress(self) -> tuple[int | None, int]: ...
    def describe(self, content_type: str, timeout: float | None) -> None: ...
    def send(self, piece: bytes | str, timeout: float | None) -> None: ...
    def flush(self, timeout: float | None) -> None: ...
    def finish(self, timeout: float | None) -> None: ...
    def fail(self, why: str, timeout: float | None) -> None: ...

@final
class PimpConsumer:
    """What `penstock.pimp.Consumer` wraps."""

    def __new__(
        cls, job: PimpJob, key: str | None, options: pimp.ReadOptions, position: str | None
    ) -> PimpConsumer: ...
    def next_index(self) -> int: ...
    def position(self) -> str: ...
    def metadata(self, timeout: float | None) -> _PimpMetadata: ...
    def next_data(self, timeout: float | None) -> bytes | None: ...

@final
class PimpTriggerServer:
    """What `penstock.pimp.TriggerServer` wraps."""

    def __new__(cls, listen: str, options: pimp.TriggerOptions) -> PimpTriggerServer: ...
    def address(self) -> str: ...
    def fingerprint(self) -> str | None: ...
    def metrics_address(self) -> str | None: ...
    def next_request(self) -> PimpAsked | None: ...
    def close(self, grace: float) -> None: ...

@final
class PimpAsked:
    """A request that waits for its answer."""

    def request(self) -> tuple[str, bytes, str, str]: ...
    def answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None: ...

def pimp_trigger(body: bytes, allowed_hosts: list[str]) -> tuple[str, str, str, str]: ...
def pimp_ask(url: str, options: pimp.ReachOptions, token: str | None, body: bytes, timeout: float | None) -> None: ...
def pimp_listen(futures: Futures, listen: str, options: pimp.ServeOptions) -> Operation[PimpBuffer]: ...
def pimp_close(futures: Futures, buffer: PimpBuffer, grace: float) -> Operation[None]: ...
def pimp_open(futures: Futures, url: str, options: pimp.ReachOptions) -> Operation[PimpJob]: ...
def pimp_create(
    futures: Futures, job: PimpJob, key: str, ttl: int | None, read_key: str | None
) -> Operation[_PimpCreated]: ...
def pimp_take_over(futures: Futures, job: PimpJob, etag: str, key: str, new_key: str) -> Operation[_PimpCreated]: ...
def pimp_status(futures: Futures, job: PimpJob, key: str | None) -> Operation[_PimpStatus]: ...
def pimp_cancel(futures: Futures, job: PimpJob, key: str) -> Operation[bool]: ...
def pimp_delete(futures: Futures, job: PimpJob, key: str) -> Operation[None]: ...
def pimp_send(futures: Futures, sender: PimpSender, piece: bytes | str) -> Operation[None]: ...
def pimp_check_sender(options: pimp.WriteOptions) -> None: ...
def pimp_describe(futures: Futures, sender: PimpSender, content_type: str) -> Operation[None]: ...
def pimp_flush(futures: Futures, sender: PimpSender) -> Operation[None]: ...
def pimp_end(futures: Futures, sender: PimpSender, why: str | None) -> Operation[None]: ...
def pimp_metadata(futures: Futures, consumer: PimpConsumer) -> Operation[_PimpMetadata]: ...
def pimp_next(futures: Futures, consumer: PimpConsumer) -> Operation[bytes | None]: ...

_QuicxStats = tuple[int, int, int, int, int]
_QuicxTask = tuple[int, str, bytes]
_QuicxDead = tuple[int, str, int, bytes]
_QuicxAnswers = tuple[list[int], list[tuple[int, int, str]]]

@final
class QuicxDaemon:
    """What `penstock.quicx.Daemon` wraps."""

    def __new__(cls, options: StartOptions) -> QuicxDaemon: ...
    def address(self) -> str | None: ...
    def tls(self) -> tuple[str, str] | None: ...
    def metrics_address(self) -> str | None: ...
    def stats(self) -> _QuicxStats: ...
    def counters(self) -> dict[str, int]: ...
    def wait_for_stop(self, timeout: float | None) -> bool: ...
    def stop(self, drain: float) -> int: ...

@final
class QuicxProducer:
    """What `penstock.quicx.Producer` wraps."""

    def __new__(cls, options: ReachOptions, heartbeat: float) -> QuicxProducer: ...
    def submit(self, kind: str, payload: bytes, key: bytes | None, timeout: float | None) -> int: ...
    def submit_many(
        self, kind: str, payloads: list[bytes], keys: list[bytes] | None, timeout: float | None
    ) -> _QuicxAnswers: ...
    def observe(self, id: int, timeout: float | None) -> bytes | None: ...  # noqa: A002
    def watch(self, id: int) -> None: ...  # noqa: A002
    def next_outcome(self, timeout: float | None) -> tuple[int, bytes | None, Exception | None] | None: ...
    def stats(self, timeout: float | None) -> _QuicxStats: ...
    def done_before(self, ids: list[int], timeout: float | None) -> list[bool]: ...
    def dead_list(self, timeout: float | None) -> list[_QuicxDead]: ...
    def dead_requeue(self, id: int, timeout: float | None) -> None: ...  # noqa: A002
    def dead_drop(self, id: int, timeout: float | None) -> None: ...  # noqa: A002
    def stop(self, timeout: float | None) -> None: ...
    def close(self) -> None: ...

@final
class QuicxWorker:
    """What `penstock.quicx.Worker` wraps."""

    def __new__(cls, options: ReachOptions, types: list[str], prefetch: int, heartbeat: float) -> QuicxWorker: ...
    def next_task(self, timeout: float | None) -> _QuicxTask | None: ...
    def done(self, id: int, timeout: float | None) -> None: ...  # noqa: A002
    def failed(self, id: int, reason: bytes, timeout: float | None) -> None: ...  # noqa: A002
    def done_all(self, ids: list[int], timeout: float | None) -> None: ...
    def settle(self, timeout: float | None) -> None: ...
    def rest(self, timeout: float | None) -> None: ...
    def close(self) -> None: ...

@final
class QuicxBlock:
    """What `penstock.quicx.Block` wraps."""

@final
class QuicxPool:
    """What `penstock.quicx.Pool` wraps."""

    def __new__(cls, bytes: int, size_classes: list[int]) -> QuicxPool: ...  # noqa: A002
    def store(self, content: bytes) -> QuicxBlock: ...
    def read(self, block: QuicxBlock) -> bytes: ...
    def free(self, block: QuicxBlock) -> None: ...
    def stats(self) -> tuple[int, int, list[tuple[int, int, int]]]: ...

def quicx_start(futures: Futures, options: StartOptions) -> Operation[QuicxDaemon]: ...
def quicx_stop(futures: Futures, daemon: QuicxDaemon, drain: float) -> Operation[int]: ...
def quicx_produce(futures: Futures, options: ReachOptions, heartbeat: float) -> Operation[QuicxProducer]: ...
def quicx_submit(
    futures: Futures, producer: QuicxProducer, kind: str, payload: bytes, key: bytes | None
) -> Operation[int]: ...
def quicx_submit_many(
    futures: Futures, producer: QuicxProducer, kind: str, payloads: list[bytes], keys: list[bytes] | None
) -> Operation[_QuicxAnswers]: ...
def quicx_observe(futures: Futures, producer: QuicxProducer, id: int) -> Operation[bytes | None]: ...  # noqa: A002
def quicx_stats(futures: Futures, producer: QuicxProducer) -> Operation[_QuicxStats]: ...
def quicx_dead_list(futures: Futures, producer: QuicxProducer) -> Operation[list[_QuicxDead]]: ...
def quicx_done_before(futures: Futures, producer: QuicxProducer, ids: list[int]) -> Operation[list[bool]]: ...
def quicx_dead(
    futures: Futures,
    producer: QuicxProducer,
    id: int,  # noqa: A002
    requeue: bool,
) -> Operation[None]: ...
def quicx_work(
    futures: Futures, options: ReachOptions, types: list[str], prefetch: int, heartbeat: float
) -> Operation[QuicxWorker]: ...
def quicx_next(futures: Futures, worker: QuicxWorker) -> Operation[_QuicxTask]: ...
def quicx_verdict(
    futures: Futures,
    worker: QuicxWorker,
    id: int,  # noqa: A002
    failure: bytes | None,
) -> Operation[None]: ...
def quicx_rest(futures: Futures, worker: QuicxWorker) -> Operation[None]: ...

@final
class VgiProtocol:
    """A service of vgi and its methods."""

    REQUEST_VERSION: Final[bytes]
    DESCRIBE_VERSION: Final[str]
    def __new__(cls, name: str, methods: Sequence[Mapping[str, object]]) -> Self: ...
    def describe(self, dialect: str, server_id: str) -> _Annotated: ...
    @property
    def hash(self) -> str: ...

@final
class VgiSegment:
    """A shared memory segment."""

    @staticmethod
    def create(size: int) -> VgiSegment: ...
    @staticmethod
    def attach(name: str, size: int) -> VgiSegment: ...
    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def num_allocs(self) -> int: ...
    @property
    def max_allocs(self) -> int: ...
    def allocate(self, length: int) -> int | None: ...
    def free(self, offset: int) -> None: ...
    def reset(self) -> None: ...
    def write_batch(self, batch: pa.RecordBatch) -> tuple[int, int] | None: ...
    def share(self, batch: pa.RecordBatch, metadata: dict[bytes, bytes] | None = None) -> _Annotated | None: ...
    def resolve(self, batch: pa.RecordBatch, metadata: dict[bytes, bytes] | None = None) -> _Annotated: ...
    @staticmethod
    def is_pointer(rows: int, metadata: dict[bytes, bytes] | None = None) -> bool: ...
    @staticmethod
    def pointer(offset: int, length: int) -> dict[bytes, bytes]: ...
    def read_buffer(self, offset: int, length: int) -> pa.Buffer: ...
    def view(self) -> bool: ...
    def descriptor(self) -> int: ...
    def snapshot(self) -> bytes: ...
    def close(self) -> None: ...
    def unlink(self) -> None: ...

@final
class VgiTable:
    """The allocations of a segment whose memory Python has."""

    HEADER: Final[int]
    MOST: Final[int]
    @staticmethod
    def create(size: int) -> VgiTable: ...
    @staticmethod
    def read(header: bytes, size: int) -> VgiTable: ...
    def write(self) -> bytes: ...
    def __len__(self) -> int: ...
    def allocate(self, length: int) -> int | None: ...
    def free(self, offset: int) -> bool: ...

@final
class VgiMetrics:
    """An endpoint that tells of a server's counters."""

    @property
    def address(self) -> str | None: ...
    def stopping(self) -> None: ...
    def close(self) -> None: ...

@final
class VgiStop:
    """Ends what threads wait for that watch it, within a tenth of a second, with an `InterruptedError`."""

    def __new__(cls) -> VgiStop: ...
    def watch(self) -> None: ...
    def set(self) -> None: ...

@final
class VgiTls:
    """How connections over TCP are encrypted."""

    @staticmethod
    def server(cert: PathLike, key: PathLike, client_ca: PathLike | None = None) -> VgiTls: ...
    @staticmethod
    def client(
        server_name: str,
        *,
        fingerprint: str | None = None,
        ca: PathLike | None = None,
        system_ca: bool = False,
        cert: PathLike | None = None,
        key: PathLike | None = None,
    ) -> VgiTls: ...
    @property
    def fingerprint(self) -> str | None: ...

@final
class VgiListener:
    """A socket that listens; connections are taken within limits, and wait for a thread."""

    FIRST_BYTE: Final[float]
    IDLE: Final[float]
    GRACE: Final[float]
    @staticmethod
    def tcp(
        server: VgiServer,
        address: str,
        *,
        first_byte: float,
        max_connections: int | None = None,
        tls: VgiTls | None = None,
    ) -> VgiListener: ...
    @staticmethod
    def unix(
        server: VgiServer, path: PathLike, *, first_byte: float, max_connections: int | None = None
    ) -> VgiListener: ...
    @property
    def port(self) -> int: ...
    def accept(self) -> VgiAccepted | None: ...
    def drain(self) -> int: ...
    def back_off(self) -> bool: ...
    def close(self) -> None: ...

@final
class VgiAccepted:
    """A connection that was let in; its place is free again once this is closed."""

    def detach(self) -> int: ...
    @property
    def time_left(self) -> float: ...
    def close(self) -> None: ...

@final
class VgiServer:
    """A service with an identity and a dialect."""

    def __new__(
        cls,
        protocol: VgiProtocol,
        *,
        server_id: str,
        dialect: str,
        describe: bool,
        max_message: int | None = None,
        external: VgiExternal | None = None,
    ) -> Self: ...
    def connection(
        self,
        reader: object,
        writer: object = None,
        segment: VgiSegment | None = None,
        tls: VgiTls | None = None,
        first_byte: float | None = None,
        idle: float | None = None,
    ) -> VgiConnection: ...
    def refused(self) -> None: ...
    def http(self, options: CoreOptions) -> VgiHttp: ...
    def metrics(self, address: str) -> VgiMetrics: ...

@final
class VgiFetcher:
    """Fetches what URLs lead to."""

    def __new__(cls, config: FetchConfig, allow_private: bool, root: PathLike | None) -> Self: ...
    def fetch(self, url: str) -> bytes: ...
    def close(self) -> None: ...

@final
class VgiStore:
    """A bucket or a container."""

    def __new__(cls, uri: str, options: Mapping[str, str], expiry_seconds: int) -> Self: ...
    def upload(self, name: str, data: bytes, coding: str | None) -> str: ...
    def upload_url(self, name: str) -> tuple[str, str]: ...

@final
class VgiExternal:
    """What an end of a connection does with batches that are elsewhere."""

    def __new__(
        cls,
        fetcher: VgiFetcher,
        *,
        max_retries: int,
        retry_delay: float,
        validator: Callable[[str], None] | None = None,
        storage: ExternalStorage | None = None,
        threshold: int | None = None,
        compression_level: int | None = None,
    ) -> Self: ...

@final
class VgiConnection:
    """A connection whose calls are asked for."""

    def next(self) -> VgiCall | None: ...

@final
class VgiCall:
    """A call that waits for its answer."""

    @property
    def method(self) -> str: ...
    @property
    def index(self) -> int: ...
    @property
    def request_id(self) -> str: ...
    @property
    def bytes_in(self) -> int: ...
    @property
    def metadata(self) -> dict[bytes, bytes]: ...
    @property
    def values(self) -> dict[str, _Value]: ...
    @property
    def cancelled(self) -> bool: ...
    def log(self, level: str, message: str, extra_json: str | None) -> None: ...
    def reply(self, value: _Value) -> None: ...
    def fail(self, kind: Literal["params", "method"], error_type: str, message: str, extra_json: str) -> None: ...
    def open(self, output_schema: pa.Schema, input_schema: pa.Schema, header: pa.RecordBatch | None) -> None: ...
    def read(self) -> _Annotated | None: ...
    def emit(self, batch: pa.RecordBatch, metadata: dict[bytes, bytes] | None) -> None: ...
    def finish(self) -> None: ...

@final
class VgiClient:
    """A connection on which methods are called, one at a time."""

    def __new__(
        cls,
        protocol: VgiProtocol,
        reader: object,
        writer: object = None,
        *,
        segment: VgiSegment | None = None,
        tls: VgiTls | None = None,
        on_log: Callable[[str, str, str | None, str | None, str | None], object] | None = None,
        max_message: int | None = None,
        external: VgiExternal | None = None,
    ) -> Self: ...
    timeout: float | None
    def call(self, method: str, values: dict[str, _Value], metadata: dict[bytes, bytes] | None = None) -> _Value: ...
    def open(
        self, method: str, values: dict[str, _Value], metadata: dict[bytes, bytes] | None = None
    ) -> VgiClientStream: ...
    def describe(self) -> _Annotated: ...

@final
class VgiClientStream:
    """A stream of a `VgiClient`."""

    def header(self) -> pa.RecordBatch | None: ...
    def exchange(self, batch: pa.RecordBatch, metadata: dict[bytes, bytes] | None = None) -> _Annotated | None: ...
    def tick(self) -> _Annotated | None: ...
    def cancel(self) -> None: ...
    def close(self) -> None: ...

@final
class VgiHttp:
    """A service over HTTP. Any number of threads may use it."""

    @property
    def max_body(self) -> int: ...
    def begin(
        self, method: str, path: str, query: str, headers: Sequence[tuple[str, str]], remote: str
    ) -> VgiHttpCall: ...
    def listen(
        self,
        address: str,
        *,
        authenticates: bool,
        cert: PathLike | None = None,
        key: PathLike | None = None,
        client_ca: PathLike | None = None,
    ) -> VgiHttpServer: ...

@final
class VgiHttpServer:
    """A server that listens."""

    @property
    def port(self) -> int: ...
    @property
    def fingerprint(self) -> str | None: ...
    def next(self) -> VgiHttpCall | None: ...
    def close(self) -> None: ...

@final
class VgiHttpCall:
    """A request: who asks is to be said, then a method answers."""

    @property
    def done(self) -> bool: ...
    @property
    def http_method(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def query(self) -> str: ...
    @property
    def headers(self) -> list[tuple[str, str]]: ...
    @property
    def remote(self) -> str: ...
    @property
    def auth(self) -> AuthContext | None: ...
    def admit(self, auth: object) -> bool: ...
    def receive(self, body: bytes) -> None: ...
    @property
    def page(self) -> Literal["made", "own"] | None: ...
    def respond(self, status: int, headers: Sequence[tuple[str, str]], body: bytes) -> None: ...
    def authenticated(self, identity: tuple[str, str] | None = None) -> None: ...
    def unauthorized(self, message: str, challenge: str | None = None) -> None: ...
    def error(self, status: int, message: str) -> None: ...
    @property
    def kind(self) -> Literal["unary", "init", "exchange", "upload_url"]: ...
    @property
    def method(self) -> str: ...
    @property
    def request_id(self) -> str: ...
    @property
    def bytes_in(self) -> int: ...
    @property
    def metadata(self) -> dict[bytes, bytes]: ...
    @property
    def values(self) -> dict[str, _Value]: ...
    def add_header(self, name: str, value: str) -> None: ...
    def log(self, level: str, message: str, extra_json: str | None) -> None: ...
    def reply(self, value: _Value) -> None: ...
    @property
    def urls(self) -> int: ...
    def reply_urls(self, urls: Sequence[tuple[str, str, int]]) -> None: ...
    def fail(self, kind: Literal["params", "method"], error_type: str, message: str, extra_json: str) -> None: ...
    @property
    def state(self) -> bytes: ...
    @property
    def output_schema(self) -> pa.Schema: ...
    @property
    def input_schema(self) -> pa.Schema: ...
    @property
    def cancelled(self) -> bool: ...
    def input(self) -> _Annotated: ...
    def open(
        self, output_schema: pa.Schema, input_schema: pa.Schema, header: pa.RecordBatch | None, producer: bool
    ) -> None: ...
    def emit(self, batch: pa.RecordBatch, metadata: dict[bytes, bytes] | None) -> None: ...
    def room(self) -> bool: ...
    def finish(self, state: bytes | None = None) -> None: ...
    def response(self) -> tuple[int, list[tuple[str, str]], bytes]: ...

@final
class VgiHttpClient:
    """Calls the methods of a service at a URL."""

    def __new__(
        cls,
        protocol: VgiProtocol,
        base_url: str,
        *,
        prefix: str | None = None,
        on_log: Callable[[str, str, str | None, str | None, str | None], object] | None = None,
        compression_level: int | None = None,
        retry: HttpRetryConfig | None = None,
        headers: Sequence[tuple[str, str]] = ...,
        fingerprint: str | None = None,
        ca: PathLike | None = None,
        system_ca: bool = False,
        cert: PathLike | None = None,
        key: PathLike | None = None,
        send: Callable[..., tuple[int, list[tuple[str, str]], bytes]] | None = None,
        max_message: int | None = None,
        external: VgiExternal | None = None,
        uploads: VgiExternal | None = None,
    ) -> Self: ...
    timeout: float | None
    def call(self, method: str, values: dict[str, _Value], metadata: dict[bytes, bytes] | None = None) -> _Value: ...
    def open(
        self, method: str, values: dict[str, _Value], metadata: dict[bytes, bytes] | None = None
    ) -> VgiHttpClientStream: ...
    def describe(self) -> _Annotated: ...
    def upload_urls(self, count: int) -> list[tuple[str, str, int]]: ...
    def capabilities(self) -> tuple[int | None, bool, int | None, int | None]: ...

@final
class VgiHttpClientStream:
    """A stream of a `VgiHttpClient`."""

    def header(self) -> pa.RecordBatch | None: ...
    def exchange(self, batch: pa.RecordBatch, metadata: dict[bytes, bytes] | None = None) -> _Annotated | None: ...
    def tick(self) -> _Annotated | None: ...
    def cancel(self) -> None: ...
    def close(self) -> None: ...

def vgi_keys() -> dict[str, bytes]: ...
def vgi_description_hash(protocol_name: str, batch: pa.RecordBatch) -> str: ...
def vgi_token_seal(
    key: bytes, dialect: str, fields: tuple[int, bytes, pa.Schema, pa.Schema, str], identity: tuple[str, str] | None
) -> bytes: ...
def vgi_token_open(
    token: bytes, key: bytes, dialect: str, identity: tuple[str, str] | None, ttl: int, now: int
) -> tuple[int, bytes, pa.Schema, pa.Schema, str]: ...
def vgi_encode(schema: pa.Schema, batches: Sequence[tuple[pa.RecordBatch, dict[bytes, bytes] | None]]) -> bytes: ...
def vgi_decode(data: bytes, max_message: int | None = None) -> tuple[pa.Schema, list[_Annotated]]: ...
