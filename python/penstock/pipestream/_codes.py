"""The protocol's closed enums, with the numbers of its registries."""

from enum import IntEnum

__all__ = ["CompletionMode", "ErrorCode", "FailureAction", "ResolutionState", "Status", "YieldReason"]


class Status(IntEnum):
    """The status of an entity: a 4-bit code (PipeStream, sections 6.2.2 and 11.3).

    >>> Status.COMPLETE.is_terminal, Status(4).name
    (True, 'FAILED')
    """

    UNSPECIFIED = 0x0
    """The protobuf default; in a STATUS frame, a heartbeat."""
    PENDING = 0x1
    """Announced, not yet transmitted."""
    PROCESSING = 0x2
    """In progress."""
    COMPLETE = 0x3
    """Success. Terminal."""
    FAILED = 0x4
    """Failure. Terminal."""
    CHECKPOINT = 0x5
    """A synchronization barrier; ignored in a STATUS frame."""
    DEHYDRATING = 0x6
    """Being split into children."""
    REHYDRATING = 0x7
    """Being reassembled from its children."""
    YIELDED = 0x8
    """Paused with a continuation token. Layer 2."""
    DEFERRED = 0x9
    """Deferred under a claim check. Layer 2, terminal."""
    RETRYING = 0xA
    """About to be sent again. Layer 2."""
    SKIPPED = 0xB
    """Left out on purpose. Layer 2, terminal."""
    ABANDONED = 0xC
    """Timed out. Layer 2, terminal."""

    @property
    def is_terminal(self) -> bool:
        """Whether the status resolves its entity."""
        return self in _TERMINAL


_TERMINAL = frozenset({Status.COMPLETE, Status.FAILED, Status.DEFERRED, Status.SKIPPED, Status.ABANDONED})


class ErrorCode(IntEnum):
    """An error code of the registry (PipeStream, section 11.4). A peer may send numbers that are not in it."""

    NO_ERROR = 0x00
    """Graceful shutdown."""
    INTERNAL_ERROR = 0x01
    """Implementation error."""
    IDLE_TIMEOUT = 0x02
    """Idle timeout."""
    CONTROL_RESET = 0x03
    """The control stream was lost."""
    INTEGRITY_ERROR = 0x04
    """A checksum or a digest does not match."""
    ENTITY_INVALID = 0x05
    """Invalid format."""
    ENTITY_TOO_LARGE = 0x06
    """A size was exceeded."""
    DEPTH_EXCEEDED = 0x07
    """The scope depth was exceeded."""
    WINDOW_EXCEEDED = 0x08
    """The window is full."""
    SCOPE_INVALID = 0x09
    """Invalid scope."""
    CLAIM_EXPIRED = 0x0A
    """A claim check has expired."""
    CLAIM_NOT_FOUND = 0x0B
    """A claim check is unknown."""
    LAYER_UNSUPPORTED = 0x0C
    """The protocol layer was not negotiated."""


class YieldReason(IntEnum):
    """The reason why an entity was paused (PipeStream, section 6.5.1). Layer 2."""

    EXTERNAL_CALL = 0x1
    """It waits for an external service."""
    RATE_LIMITED = 0x2
    """The receiver limits its own rate."""
    AWAITING_SIBLING = 0x3
    """It waits for a sibling."""
    AWAITING_APPROVAL = 0x4
    """It waits for the approval of a person or a workflow."""
    RESOURCE_BUSY = 0x5
    """It waits for a semaphore or a lock."""


class CompletionMode(IntEnum):
    """The condition under which a parent is complete (PipeStream, section 9.2). Below layer 2 it is STRICT."""

    UNSPECIFIED = 0
    """Not set."""
    STRICT = 1
    """All children are COMPLETE."""
    LENIENT = 2
    """At least one child is COMPLETE."""
    BEST_EFFORT = 3
    """None: the parent is always complete."""
    QUORUM = 4
    """The ratio of children that are COMPLETE reaches ``min_success_ratio``."""


class FailureAction(IntEnum):
    """What happens to a child that failed or took too long (PipeStream, section 8.3). Layer 2."""

    UNSPECIFIED = 0
    """Not set."""
    FAIL = 1
    """It becomes FAILED, or ABANDONED after a timeout."""
    SKIP = 2
    """It becomes SKIPPED."""
    RETRY = 3
    """It is sent again."""
    DEFER = 4
    """It becomes DEFERRED under a claim check."""


class ResolutionState(IntEnum):
    """The state of a parent in the manifest (PipeStream, section 9.2)."""

    ACTIVE = 1
    """Children may still be added or completed."""
    RESOLVED = 2
    """Complete."""
    PARTIAL = 3
    """Complete, although some children failed or were skipped; never under STRICT."""
    FAILED = 4
    """Failed."""
