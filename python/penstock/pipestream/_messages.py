"""Messages that travel inside others: what becomes of failures, claim checks. Their behaviour belongs to layer 2."""

import struct
from dataclasses import dataclass

from penstock import _core
from penstock.pipestream._codes import CompletionMode, FailureAction
from penstock.pipestream._fields import ReadableBuffer, check_uint, octets

__all__ = ["ClaimCheck", "CompletionPolicy", "StoppingPointValidation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionPolicy:
    """What becomes of a parent when children fail: the CompletionPolicy message (section 8.3). None means "not set".

    >>> policy = CompletionPolicy(mode=CompletionMode.QUORUM, min_success_ratio=0.75)
    >>> CompletionPolicy.decode(policy.encode()) == policy
    True
    """

    mode: CompletionMode | None = None
    """When the parent is complete."""
    max_retries: int | None = None
    """How often a child is sent again, 32 bits; the protocol's default is 3."""
    retry_delay_ms: int | None = None
    """Milliseconds before that, 32 bits; the default is 1000."""
    timeout_ms: int | None = None
    """Milliseconds that a child may take, 32 bits; the default is 300000, and 0 means no time-out."""
    min_success_ratio: float | None = None
    """For QUORUM, 0 to 1. Kept in single precision, as the wire carries it."""
    on_timeout: FailureAction | None = None
    """What becomes of a child that took too long."""
    on_failure: FailureAction | None = None
    """What becomes of a child that failed."""

    def __post_init__(self) -> None:
        """Refuse numbers that the wire cannot carry."""
        check_uint(self, 32, "max_retries", "retry_delay_ms", "timeout_ms")
        if self.min_success_ratio is not None:
            (single,) = struct.unpack("<f", struct.pack("<f", self.min_success_ratio))
            object.__setattr__(self, "min_success_ratio", single)

    def encode(self) -> bytes:
        """Give the protobuf message, without a length."""
        return _core.encode_policy(self)

    @classmethod
    def decode(cls, data: ReadableBuffer) -> "CompletionPolicy":
        """Parse a message, all of ``data``.

        Raises:
            PipeStreamError: ENTITY_INVALID where it does not parse or holds an unknown enum value (enums are closed).
        """
        return policy_of(_core.decode_policy(octets(data)))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppingPointValidation:
    """How far an entity was when it was set aside: part of a ClaimCheck (section 6.5.2). None means "not set"."""

    state_checksum: bytes | None = None
    """Hash of the internal state."""
    bytes_processed: int | None = None
    """Octets of the payload that were consumed, 64 bits."""
    children_complete: int | None = None
    """Children that were complete, 32 bits."""
    children_total: int | None = None
    """Children that were expected, 32 bits."""
    is_resumable: bool | None = None
    """Whether it can be resumed."""
    checkpoint_ref: str | None = None
    """The last checkpoint that was passed."""

    def __post_init__(self) -> None:
        """Refuse numbers that the wire cannot carry."""
        check_uint(self, 64, "bytes_processed")
        check_uint(self, 32, "children_complete", "children_total")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimCheck:
    """A reference to an entity that was set aside: the ClaimCheck message (section 6.5.2). None means "not set".

    In the extension of a DEFERRED frame only ``claim_id`` and ``expiry_timestamp`` travel, and both must be set.

    >>> ClaimCheck.decode(ClaimCheck(claim_id=7, entity_id=3).encode())
    ClaimCheck(claim_id=7, entity_id=3, scope_id=None, expiry_timestamp=None, validation=None)
    """

    claim_id: int | None = None
    """The claim's ID, 64 bits."""
    entity_id: int | None = None
    """The deferred entity, 32 bits."""
    scope_id: int | None = None
    """Its scope, 32 bits."""
    expiry_timestamp: int | None = None
    """Microseconds since the Unix epoch after which the claim is refused, 64 bits."""
    validation: StoppingPointValidation | None = None
    """How far the entity was."""

    def __post_init__(self) -> None:
        """Refuse numbers that the wire cannot carry."""
        check_uint(self, 64, "claim_id", "expiry_timestamp")
        check_uint(self, 32, "entity_id", "scope_id")

    def encode(self) -> bytes:
        """Give the protobuf message, without a length."""
        return _core.encode_claim(self)

    @classmethod
    def decode(cls, data: ReadableBuffer) -> "ClaimCheck":
        """Parse a message, all of ``data``.

        Raises:
            PipeStreamError: ENTITY_INVALID where it does not parse.
        """
        fields = _core.decode_claim(octets(data))
        validation = fields["validation"]
        return cls(
            claim_id=fields["claim_id"],
            entity_id=fields["entity_id"],
            scope_id=fields["scope_id"],
            expiry_timestamp=fields["expiry_timestamp"],
            validation=None if validation is None else StoppingPointValidation(**validation),
        )


def policy_of(fields: "_core._PolicyFields") -> CompletionPolicy:
    """Make the dataclass from what the core decoded."""
    mode, on_timeout, on_failure = fields["mode"], fields["on_timeout"], fields["on_failure"]
    return CompletionPolicy(
        mode=None if mode is None else CompletionMode(mode),
        max_retries=fields["max_retries"],
        retry_delay_ms=fields["retry_delay_ms"],
        timeout_ms=fields["timeout_ms"],
        min_success_ratio=fields["min_success_ratio"],
        on_timeout=None if on_timeout is None else FailureAction(on_timeout),
        on_failure=None if on_failure is None else FailureAction(on_failure),
    )
