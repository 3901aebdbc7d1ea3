"""The frames of the control stream (section 6) and the header of an entity stream, as values.

Each encodes to the bytes of the wire and decodes from them; the Rust core does both. They are frozen, hashable where
their fields are, compare by value and survive a pickle.
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
    """What a YIELDED frame carries (section 6.5.1). Layer 2."""

    reason: YieldReason
    """Why the entity was paused."""
    token: bytes = b""
    """The opaque state to go on with, at most 16,777,215 bytes."""


@dataclass(frozen=True, slots=True)
class StatusFrame:
    """STATUS, 0x50 (section 6.2): an entity's new status.

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
    """What YIELDED (a YieldExtension) and DEFERRED (a ClaimCheck) carry, and no other status."""

    def __post_init__(self) -> None:
        """Refuse what the wire cannot carry."""
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
            raise ValueError("a STATUS extension carries id and expiry_timestamp of a ClaimCheck, no more")

    def encode(self) -> bytes:
        """Give the bytes of the wire, the type byte first.

        Raises:
            PipeStreamError: A misuse, where the extension is not the status's own or its token is too long.
        """
        return _core.encode_status(self)

    @classmethod
    def decode(cls, data: ReadableBuffer) -> tuple["StatusFrame", int]:
        """Give the frame at the start of ``data`` and how many bytes it takes.

        Raises:
            PipeStreamError: ENTITY_INVALID where it is cut short, reserved or of another type.
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
    """SCOPE_DIGEST, 0x54 (section 6.3): what became of a scope's entities.

    >>> ScopeDigest(scope_id=2, processed=0, succeeded=0, failed=0, deferred=0, merkle_root=bytes(32)).encode()[:4]
    b'T\\x00\\x00\\x02'
    """

    scope_id: int
    """The scope, 16 bits."""
    processed: int
    """All entities of the scope, 64 bits."""
    succeeded: int
    """Those that are COMPLETE."""
    failed: int
    """Those that are FAILED or ABANDONED."""
    deferred: int
    """Those that are DEFERRED."""
    merkle_root: bytes
    """The root over all IDs and statuses (section 9.4), 32 bytes."""

    def __post_init__(self) -> None:
        """Refuse what the wire cannot carry."""
        check_uint(self, 16, "scope_id")
        check_uint(self, 64, "processed", "succeeded", "failed", "deferred")
        if len(self.merkle_root) != 32:
            raise ValueError(f"ScopeDigest.merkle_root must have 32 bytes, not {len(self.merkle_root)}")

    def encode(self) -> bytes:
        """Give the bytes of the wire, the type byte first."""
        return _core.encode_scope_digest(self)

    @classmethod
    def decode(cls, data: ReadableBuffer) -> tuple["ScopeDigest", int]:
        """Give the frame at the start of ``data`` and how many bytes it takes.

        Raises:
            PipeStreamError: ENTITY_INVALID where it is cut short or of another type.
        """
        fields, used = _core.decode_scope_digest(as_bytes(data))
        return cls(**fields), used


@dataclass(frozen=True, slots=True)
class Barrier:
    """BARRIER, 0x55 (section 6.4): the end of a scope's announcements, or its release.

    >>> Barrier.decode(Barrier(2, 7, released=True).encode())
    (Barrier(barrier_id=2, parent_id=7, released=True), 8)
    """

    barrier_id: int
    """The scope, 16 bits."""
    parent_id: int
    """The entity whose children are in the scope, 32 bits; 0 for a root scope."""
    released: bool = False
    """False: no more children come. True: all of them are terminal, and the scope is released."""

    def __post_init__(self) -> None:
        """Refuse what the wire cannot carry."""
        check_uint(self, 16, "barrier_id")
        check_uint(self, 32, "parent_id")

    def encode(self) -> bytes:
        """Give the bytes of the wire, the type byte first."""
        return _core.encode_barrier(self)

    @classmethod
    def decode(cls, data: ReadableBuffer) -> tuple["Barrier", int]:
        """Give the frame at the start of ``data`` and how many bytes it takes.

        Raises:
            PipeStreamError: ENTITY_INVALID where it is cut short or of another type.
        """
        fields, used = _core.decode_barrier(as_bytes(data))
        return cls(**fields), used


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """What both ends of a session keep to: the minimum of their capabilities (section 3.4, decision 1)."""

    layer: int
    """The highest layer that both have, 0 to 2."""
    max_scope_depth: int
    """The deepest scope, at most 7."""
    max_entities_per_scope: int
    """Entities of one scope."""
    max_window_size: int
    """Unresolved entities of one scope: beyond it a sender waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """CAPABILITIES, 0x80 (section 3.4): what an endpoint can do. A number that is 0 or None means the default.

    >>> Capabilities(max_window_size=100).negotiate(Capabilities(layer1=False)).layer
    0
    """

    layer0: bool = True
    """Layer 0, without which there is no session."""
    layer1: bool = True
    """Layer 1: scopes, digests, barriers."""
    layer2: bool = False
    """Layer 2: yields, claim checks, policies."""
    max_scope_depth: int | None = None
    """The deepest scope, by default 7."""
    max_entities_per_scope: int | None = None
    """Entities of one scope, by default 4,294,967,294."""
    max_window_size: int | None = None
    """Unresolved entities of one scope, by default 2,147,483,646."""

    def __post_init__(self) -> None:
        """Refuse what the wire cannot carry."""
        check_uint(self, 32, "max_scope_depth", "max_entities_per_scope", "max_window_size")

    def negotiate(self, peer: "Capabilities") -> Agreement:
        """Give what both ends agree on: the minimum of each number, the conjunction of each flag.

        Raises:
            PipeStreamError: LAYER_UNSUPPORTED where the peer does not have layer 0.
        """
        return Agreement(**_core.negotiate(self, peer))

    def encode(self) -> bytes:
        """Give the bytes of the wire, the type byte first."""
        return _core.encode_capabilities(self)

    @classmethod
    def decode(cls, data: ReadableBuffer) -> tuple["Capabilities", int]:
        """Give the frame at the start of ``data`` and how many bytes it takes.

        Raises:
            PipeStreamError: ENTITY_INVALID where it is cut short, does not parse or is of another type.
        """
        fields, used = _core.decode_capabilities(as_bytes(data))
        return cls(**fields), used


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """CHECKPOINT, 0x81 (section 9.3): a question whether entities are done, and with flags its answer.

    >>> Checkpoint(scope_id=2, checkpoint_entity_id=9).is_satisfied
    False
    """

    checkpoint_id: str = ""
    """For logs, and to tell checkpoints apart."""
    sequence_number: int = 0
    """Counts the checkpoints, 64 bits."""
    checkpoint_entity_id: int = 0
    """The last entity that it covers, 32 bits; 0 means all assigned so far."""
    scope_id: int = 0
    """The scope that it is about, 32 bits."""
    flags: int = 0
    """In an answer, bit 0: satisfied, bit 1: timed out."""
    timeout_ms: int = 0
    """How many milliseconds the answer may take, 32 bits; 0 means 30 s."""

    def __post_init__(self) -> None:
        """Refuse what the wire cannot carry."""
        check_uint(self, 64, "sequence_number")
        check_uint(self, 32, "checkpoint_entity_id", "scope_id", "flags", "timeout_ms")

    @property
    def is_satisfied(self) -> bool:
        """Whether this answers that all it covers is done."""
        return bool(self.flags & 1)

    @property
    def is_timed_out(self) -> bool:
        """Whether this answers that the time was over first."""
        return bool(self.flags & 2)

    def encode(self) -> bytes:
        """Give the bytes of the wire, the type byte first."""
        return _core.encode_checkpoint(self)

    @classmethod
    def decode(cls, data: ReadableBuffer) -> tuple["Checkpoint", int]:
        """Give the frame at the start of ``data`` and how many bytes it takes.

        Raises:
            PipeStreamError: ENTITY_INVALID where it is cut short, does not parse or is of another type.
        """
        fields, used = _core.decode_checkpoint(as_bytes(data))
        return cls(**fields), used


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkInfo:
    """Which part of a payload a stream carries (section 6.7.1)."""

    total_chunks: int
    """How many streams carry the payload, 32 bits."""
    chunk_index: int
    """Which of them this is, from 0."""
    chunk_offset: int
    """Where its bytes begin in the whole payload, 64 bits."""

    def __post_init__(self) -> None:
        """Refuse what the wire cannot carry."""
        check_uint(self, 32, "total_chunks", "chunk_index")
        check_uint(self, 64, "chunk_offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityHeader:
    """The head of an entity stream (section 6.7). What is not set is 0 or empty.

    >>> header = EntityHeader(entity_id=1, content_type="text/plain", metadata={"name": "a.txt"})
    >>> EntityHeader.decode(header.encode())[0].metadata["name"]
    'a.txt'
    """

    entity_id: int = 0
    """The entity, unique in its scope, 32 bits."""
    parent_id: int = 0
    """The parent, 32 bits; 0 for a root entity."""
    scope_id: int = 0
    """The scope, 32 bits (on the wire; there are 65,536)."""
    layer: int = 0
    """The data layer, 0 to 3."""
    content_type: str = ""
    """The MIME type of the payload."""
    payload_length: int = 0
    """Bytes of the whole payload, over all chunks, 64 bits."""
    checksum: bytes = b""
    """SHA-256 of the whole payload."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Anything else. Keys that begin with ``pipestream.`` belong to the protocol."""
    chunk_info: ChunkInfo | None = None
    """Which part of the payload the stream carries; None: all of it."""
    completion_policy: CompletionPolicy | None = None
    """What becomes of the entity when children fail. Layer 2."""

    def __post_init__(self) -> None:
        """Refuse what the wire cannot carry, and keep a copy of the metadata."""
        check_uint(self, 32, "entity_id", "parent_id", "scope_id", "layer")
        check_uint(self, 64, "payload_length")
        object.__setattr__(self, "metadata", dict(self.metadata))

    def __hash__(self) -> int:
        """Agree with equality, which includes the metadata."""
        return hash((self.entity_id, self.scope_id, self.checksum, frozenset(self.metadata.items())))

    def encode(self) -> bytes:
        """Give the bytes of the wire: the header's length, 32 bits, then the header."""
        return _core.encode_header(self)

    @classmethod
    def decode(cls, data: ReadableBuffer) -> tuple["EntityHeader", int]:
        """Give the header at the start of ``data`` and how many bytes it takes; the payload follows.

        Raises:
            PipeStreamError: ENTITY_INVALID where it is cut short or does not parse, ENTITY_TOO_LARGE above 1 MiB.
        """
        fields, used = _core.decode_header(as_bytes(data))
        return header_of(fields), used


def header_of(fields: "_core._HeaderFields") -> EntityHeader:
    """Make the dataclass from what the core decoded."""
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
