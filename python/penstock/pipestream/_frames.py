"""The frames of the control stream (PipeStream, section 6) and the header of an entity stream, as values.

Each has ``encode`` and ``decode`` for its bytes on the wire. They are frozen, hashable if their fields are, compare by
value and can be pickled.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock import _core
from penstock.pipestream._codes import Status, YieldReason
from penstock.pipestream._fields import ReadableBuffer, as_bytes, check_uint
from penstock.pipestream._messages import ClaimCheck
from penstock.pipestream._policy import CompletionPolicy, policy_of

__all__ = [
    "Agreement",
    "Barrier",
    "Capabilities",
    "Checkpoint",
    "ChunkInfo",
    "EntityHeader",
    "ScopeDigest",
    "StatusFrame",
    "YieldExtension",
]


@dataclass(frozen=True, slots=True)
class YieldExtension:
    """The extension of a YIELDED frame (PipeStream, section 6.5.1). Layer 2."""

    reason: YieldReason
    """Why the entity was paused."""
    token: bytes = b""
    """The opaque state from which the entity resumes, at most 16,777,215 bytes."""


@dataclass(frozen=True, slots=True)
class StatusFrame:
    """The STATUS frame, 0x50: an entity's new status (PipeStream, section 6.2).

    >>> frame = StatusFrame(Status.COMPLETE, 7, cursor=8)
    >>> frame.encode().hex()
    '50340000000000070000000000000008'
    >>> StatusFrame.decode(frame.encode())[0] == frame
    True
    """

    status: Status
    """The status."""
    entity_id: int
    """The entity, 32 bits; 0xFFFFFFFF in a heartbeat."""
    scope_id: int = 0
    """The entity's scope, 16 bits."""
    depth: int = field(default=0, kw_only=True)
    """The scope's depth, 0 to 7."""
    cursor: int | None = field(default=None, kw_only=True)
    """The scope's new cursor, 32 bits, if the status advances it."""
    extension: YieldExtension | ClaimCheck | None = field(default=None, kw_only=True)
    """The extension of YIELDED (a YieldExtension) or DEFERRED (a ClaimCheck); None for other statuses."""

    def __post_init__(self) -> None:
        """Reject values that the wire cannot carry."""
        check_uint(self, 32, "entity_id", "cursor")
        check_uint(self, 16, "scope_id")
        check_uint(self, 3, "depth")
        object.__setattr__(self, "status", Status(self.status))
        claim = self.extension
        if isinstance(claim, ClaimCheck) and (
            claim != ClaimCheck(id=claim.id, expiry_timestamp=claim.expiry_timestamp)
            or claim.id is None
            or claim.expiry_timestamp is None
        ):
            raise ValueError("a STATUS extension carries only id and expiry_timestamp of a ClaimCheck")

    def encode(self) -> bytes:
        """Return the frame's bytes, the type byte first.

        Raises:
            PipeStreamError: Of kind "misuse" if the extension does not belong to the status, or its token is too long.
        """
        return _core.encode_status(self)

    @classmethod
    def decode(cls, data: ReadableBuffer) -> tuple["StatusFrame", int]:
        """Decode the frame at the start of ``data``; return it and the number of its bytes.

        Raises:
            PipeStreamError: ENTITY_INVALID if it is truncated, reserved or of another type.
        """
        fields, used = _core.decode_status(as_bytes(data))
        extension: YieldExtension | ClaimCheck | None = None
        carried = fields["extension"]
        if carried is not None and "token" in carried:
            extension = YieldExtension(YieldReason(carried["reason"]), carried["token"])
        elif carried is not None:
            extension = ClaimCheck(**carried)
        frame = cls(
            Status(fields["status"]),
            fields["entity_id"],
            fields["scope_id"],
            depth=fields["depth"],
            cursor=fields["cursor"],
            extension=extension,
        )
        return frame, used


@dataclass(frozen=True, slots=True)
class ScopeDigest:
    """The SCOPE_DIGEST frame, 0x54: the outcomes of a scope's entities (PipeStream, section 6.3).

    >>> ScopeDigest(scope_id=2, processed=0, succeeded=0, failed=0, deferred=0, merkle_root=bytes(32)).encode()[:4]
    b'T\\x00\\x00\\x02'
    """

    scope_id: int
    """The scope, 16 bits."""
    processed: int
    """The number of all entities of the scope, 64 bits."""
    succeeded: int
    """The number of entities that are COMPLETE, 64 bits."""
    failed: int
    """The number of entities that are FAILED or ABANDONED, 64 bits."""
    deferred: int
    """The number of entities that are DEFERRED, 64 bits."""
    merkle_root: bytes
    """The Merkle root over all IDs and statuses, 32 bytes; see `merkle_root`."""

    def __post_init__(self) -> None:
        """Reject values that the wire cannot carry."""
        check_uint(self, 16, "scope_id")
        check_uint(self, 64, "processed", "succeeded", "failed", "deferred")
        if len(self.merkle_root) != 32:
            raise ValueError(f"ScopeDigest.merkle_root must have 32 bytes, not {len(self.merkle_root)}")

    def encode(self) -> bytes:
        """Return the frame's bytes, the type byte first."""
        return _core.encode_scope_digest(self)

    @classmethod
    def decode(cls, data: ReadableBuffer) -> tuple["ScopeDigest", int]:
        """Decode the frame at the start of ``data``; return it and the number of its bytes.

        Raises:
            PipeStreamError: ENTITY_INVALID if it is truncated or of another type.
        """
        fields, used = _core.decode_scope_digest(as_bytes(data))
        return cls(**fields), used


@dataclass(frozen=True, slots=True)
class Barrier:
    """The BARRIER frame, 0x55: the end of a scope's announcements, or its release (PipeStream, section 6.4).

    >>> Barrier.decode(Barrier(2, 7, released=True).encode())
    (Barrier(barrier_id=2, parent_id=7, released=True), 8)
    """

    barrier_id: int
    """The scope, 16 bits."""
    parent_id: int
    """The entity whose children are in the scope, 32 bits; 0 for a root scope."""
    released: bool = False
    """False: no more children follow. True: all children are terminal, and the scope is released."""

    def __post_init__(self) -> None:
        """Reject values that the wire cannot carry."""
        check_uint(self, 16, "barrier_id")
        check_uint(self, 32, "parent_id")

    def encode(self) -> bytes:
        """Return the frame's bytes, the type byte first."""
        return _core.encode_barrier(self)

    @classmethod
    def decode(cls, data: ReadableBuffer) -> tuple["Barrier", int]:
        """Decode the frame at the start of ``data``; return it and the number of its bytes.

        Raises:
            PipeStreamError: ENTITY_INVALID if it is truncated or of another type.
        """
        fields, used = _core.decode_barrier(as_bytes(data))
        return cls(**fields), used


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The layer and the limits of a session: the minimum of both ends' capabilities (PipeStream, section 3.4)."""

    layer: int
    """The highest layer that both ends support, 0 to 2."""
    max_scope_depth: int
    """The depth of the deepest scope, at most 7."""
    max_entities_per_scope: int
    """The most entities of one scope."""
    max_window_size: int
    """The most unresolved entities of one scope; beyond it a sender waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The CAPABILITIES frame, 0x80 (PipeStream, section 3.4). A number that is 0 or None means its default.

    >>> Capabilities(max_window_size=100).negotiate(Capabilities(layer1=False)).layer
    0
    """

    layer0: bool = True
    """Whether layer 0 is supported; a session needs it."""
    layer1: bool = True
    """Whether layer 1 is supported: scopes, digests, barriers."""
    layer2: bool = False
    """Whether layer 2 is supported: yields, claim checks, policies."""
    max_scope_depth: int | None = None
    """The depth of the deepest scope; by default 7."""
    max_entities_per_scope: int | None = None
    """The most entities of one scope; by default 4,294,967,294."""
    max_window_size: int | None = None
    """The most unresolved entities of one scope; by default 2,147,483,646."""

    def __post_init__(self) -> None:
        """Reject values that the wire cannot carry."""
        check_uint(self, 32, "max_scope_depth", "max_entities_per_scope", "max_window_size")

    def negotiate(self, peer: "Capabilities") -> Agreement:
        """Return what both ends agree on: the minimum of each number, and the layers that both support.

        Raises:
            PipeStreamError: LAYER_UNSUPPORTED if the peer does not support layer 0.
        """
        return Agreement(**_core.negotiate(self, peer))

    def encode(self) -> bytes:
        """Return the frame's bytes, the type byte first."""
        return _core.encode_capabilities(self)

    @classmethod
    def decode(cls, data: ReadableBuffer) -> tuple["Capabilities", int]:
        """Decode the frame at the start of ``data``; return it and the number of its bytes.

        Raises:
            PipeStreamError: ENTITY_INVALID if it is truncated, does not parse or is of another type.
        """
        fields, used = _core.decode_capabilities(as_bytes(data))
        return cls(**fields), used


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The CHECKPOINT frame, 0x81: asks whether entities are terminal, or answers (PipeStream, section 9.3).

    >>> Checkpoint(scope_id=2, checkpoint_entity_id=9).is_satisfied
    False
    """

    checkpoint_id: str = ""
    """A name that identifies the checkpoint, for example in logs."""
    sequence_number: int = 0
    """The number of the checkpoint, 64 bits."""
    checkpoint_entity_id: int = 0
    """The last entity that the checkpoint covers, 32 bits; 0 means all entities assigned so far."""
    scope_id: int = 0
    """The scope, 32 bits."""
    flags: int = 0
    """The flags of an answer: bit 0, satisfied; bit 1, timed out."""
    timeout_ms: int = 0
    """Milliseconds that the answer may take, 32 bits; 0 means 30 s."""

    def __post_init__(self) -> None:
        """Reject values that the wire cannot carry."""
        check_uint(self, 64, "sequence_number")
        check_uint(self, 32, "checkpoint_entity_id", "scope_id", "flags", "timeout_ms")

    @property
    def is_satisfied(self) -> bool:
        """Whether this is the answer that all covered entities are terminal."""
        return bool(self.flags & 1)

    @property
    def is_timed_out(self) -> bool:
        """Whether this is the answer that the checkpoint has timed out."""
        return bool(self.flags & 2)

    def encode(self) -> bytes:
        """Return the frame's bytes, the type byte first."""
        return _core.encode_checkpoint(self)

    @classmethod
    def decode(cls, data: ReadableBuffer) -> tuple["Checkpoint", int]:
        """Decode the frame at the start of ``data``; return it and the number of its bytes.

        Raises:
            PipeStreamError: ENTITY_INVALID if it is truncated, does not parse or is of another type.
        """
        fields, used = _core.decode_checkpoint(as_bytes(data))
        return cls(**fields), used


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkInfo:
    """The part of a payload that a stream carries (PipeStream, section 6.7.1)."""

    total_chunks: int
    """The number of streams that carry the payload, 32 bits."""
    chunk_index: int
    """The index of this stream among them, from 0, 32 bits."""
    chunk_offset: int
    """The offset of its bytes in the whole payload, 64 bits."""

    def __post_init__(self) -> None:
        """Reject values that the wire cannot carry."""
        check_uint(self, 32, "total_chunks", "chunk_index")
        check_uint(self, 64, "chunk_offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityHeader:
    """The header of an entity stream (PipeStream, section 6.7). Fields that are not set are 0 or empty.

    >>> header = EntityHeader(entity_id=1, content_type="text/plain", metadata={"name": "a.txt"})
    >>> EntityHeader.decode(header.encode())[0].metadata["name"]
    'a.txt'
    """

    entity_id: int = 0
    """The entity's ID, unique in its scope, 32 bits."""
    parent_id: int = 0
    """The parent's ID, 32 bits; 0 for a root entity."""
    scope_id: int = 0
    """The scope's ID, a field of 32 bits, although there are only 65,536 scopes."""
    layer: int = 0
    """The data layer, 0 to 3."""
    content_type: str = ""
    """The MIME type of the payload."""
    payload_length: int = 0
    """The bytes of the whole payload, in all chunks together, 64 bits."""
    checksum: bytes = b""
    """The SHA-256 of the whole payload."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Any strings of the sender. Keys that begin with ``pipestream.`` belong to the protocol."""
    chunk_info: ChunkInfo | None = None
    """The part of the payload that the stream carries; None if it carries all of it."""
    completion_policy: CompletionPolicy | None = None
    """The policy for children that fail. Layer 2."""

    def __post_init__(self) -> None:
        """Reject values that the wire cannot carry, and copy the metadata."""
        check_uint(self, 32, "entity_id", "parent_id", "scope_id", "layer")
        check_uint(self, 64, "payload_length")
        object.__setattr__(self, "metadata", dict(self.metadata))

    def __hash__(self) -> int:
        """Hash the names, the checksum and the metadata, because a dict is not hashable itself."""
        return hash((self.entity_id, self.scope_id, self.checksum, frozenset(self.metadata.items())))

    def encode(self) -> bytes:
        """Return the bytes on the wire: the header's length, 32 bits, then the header."""
        return _core.encode_header(self)

    @classmethod
    def decode(cls, data: ReadableBuffer) -> tuple["EntityHeader", int]:
        """Decode the header at the start of ``data``; return it and the number of its bytes, which the payload follows.

        Raises:
            PipeStreamError: ENTITY_INVALID if it is truncated or does not parse, ENTITY_TOO_LARGE above 1 MiB.
        """
        fields, used = _core.decode_header(as_bytes(data))
        return header_of(fields), used


def header_of(fields: "_core._HeaderFields") -> EntityHeader:
    """Return the dataclass for a header that the core decoded."""
    chunk_info, policy = fields["chunk_info"], fields["completion_policy"]
    return EntityHeader(
        entity_id=fields["entity_id"],
        parent_id=fields["parent_id"],
        scope_id=fields["scope_id"],
        layer=fields["layer"],
        content_type=fields["content_type"],
        payload_length=fields["payload_length"],
        checksum=fields["checksum"],
        metadata=fields["metadata"],
        chunk_info=None if chunk_info is None else ChunkInfo(**chunk_info),
        completion_policy=None if policy is None else policy_of(policy),
    )
