"""Messages inside other messages: claim checks, and the progress of a deferred entity. Layer 2."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock import _core
from penstock.pipestream._codes import Status
from penstock.pipestream._fields import ReadableBuffer, as_bytes, check_uint

__all__ = ["ClaimCheck", "SetAside", "StoppingPointValidation", "claim_id", "claim_of", "set_aside_of"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppingPointValidation:
    """The progress of an entity when it was deferred: part of a ClaimCheck (PipeStream, section 6.5.2).

    None means "not set".
    """

    state_checksum: bytes | None = None
    """The hash of the internal state."""
    bytes_processed: int | None = None
    """The bytes of the payload that were processed, 64 bits."""
    children_complete: int | None = None
    """The number of children that were complete, 32 bits."""
    children_total: int | None = None
    """The number of children that were expected, 32 bits."""
    is_resumable: bool | None = None
    """Whether the entity can be resumed."""
    checkpoint_ref: str | None = None
    """The last checkpoint that was passed."""

    def __post_init__(self) -> None:
        """Reject numbers that the wire cannot carry."""
        check_uint(self, 64, "bytes_processed")
        check_uint(self, 32, "children_complete", "children_total")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimCheck:
    """A claim check of a deferred entity, and its current status (PipeStream, section 6.5.2). None means "not set".

    The ClaimCheck message carries all fields except ``session``, ``status`` and ``file``; the extension of a DEFERRED
    frame carries only ``id`` and ``expiry_timestamp``.

    >>> claim = ClaimCheck(id=0x17, scope=2, entity=3, expiry_timestamp=1_800_000_000_000_000)
    >>> claim.hex, str(claim.expires)
    ('0000000000000017', '2027-01-15 08:00:00+00:00')
    >>> ClaimCheck.decode(claim.encode()) == claim
    True
    """

    id: int | None = None
    """The claim's ID: 64 random bits, shown as 16 hex digits."""
    session: str | None = None
    """The ID of the session in which the entity was deferred; a client needs it to redeem the claim check."""
    scope: int | None = None
    """The ID of the entity's scope, 32 bits."""
    entity: int | None = None
    """The ID of the deferred entity, 32 bits."""
    expiry_timestamp: int | None = None
    """The time at which the claim check expires, in microseconds since the Unix epoch, 64 bits."""
    status: Status = Status.DEFERRED
    """DEFERRED until the claim check is redeemed, then PROCESSING, then the terminal status of the redeemed entity."""
    validation: StoppingPointValidation | None = None
    """The progress of the entity when it was deferred."""
    file: str | None = None
    """The payload's place in the sink, ``SESSION/SCOPE/ENTITY``, if the claim check was settled without a session."""

    def __post_init__(self) -> None:
        """Reject numbers that the wire cannot carry."""
        check_uint(self, 64, "id", "expiry_timestamp")
        check_uint(self, 32, "scope", "entity")

    @property
    def hex(self) -> str | None:
        """The ID as 16 hex digits, the form in receipts and headers."""
        return None if self.id is None else f"{self.id:016x}"

    @property
    def expires(self) -> datetime | None:
        """The time at which the claim check expires, in UTC, at most the end of the year 9999."""
        return None if self.expiry_timestamp is None else moment(self.expiry_timestamp)

    def encode(self) -> bytes:
        """Return the protobuf message, without a length prefix."""
        return _core.encode_claim(self)

    @classmethod
    def decode(cls, data: ReadableBuffer) -> "ClaimCheck":
        """Decode a protobuf message, which must fill ``data``.

        Raises:
            PipeStreamError: ENTITY_INVALID if it does not parse.
        """
        return claim_of(_core.decode_claim(as_bytes(data)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """A deferred entity with its claim check, as listed by `Server.claims` and `SinkReader.claims`."""

    claim: ClaimCheck
    """The claim check, with its current ``status``."""
    reason: str | None = None
    """Why the entity was deferred."""
    document: str | None = None
    """The document that contains the entity, if its sender named it."""
    path: tuple[str, ...] | None = None
    """The path of the entity in the document, if its sender named it."""
    type: str | None = None
    """The entity's content type."""
    bytes: int | None = None
    """The size of the payload in bytes, if it arrived completely."""
    sha256: str | None = None
    """The SHA-256 of the payload, in hex."""
    file: str | None = None
    """The payload's place in the sink, ``SESSION/SCOPE/ENTITY``, if it was stored."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that ``penstock pipestream claims --json`` prints and that tasks of ``defer_to`` have.

        >>> SetAside(claim=ClaimCheck(id=1, session="ab" * 16, scope=2, entity=3)).to_dict()["claim"]
        '0000000000000001'
        """
        claim = self.claim
        expires = claim.expires
        return {
            "claim": claim.hex,
            "session": claim.session,
            "scope": claim.scope,
            "entity": claim.entity,
            "status": claim.status.name,
            "expires": None if expires is None else expires.isoformat(timespec="seconds").replace("+00:00", "Z"),
            "reason": self.reason,
            "document": self.document,
            "path": None if self.path is None else list(self.path),
            "type": self.type,
            "bytes": self.bytes,
            "sha256": self.sha256,
            "file": self.file,
        }


def set_aside_of(row: "_core._ClaimRow") -> SetAside:
    """Return the dataclass for a row of the core."""
    claim = ClaimCheck(
        id=row["claim_id"],
        session=row["session"],
        scope=row["scope_id"],
        entity=row["entity_id"],
        expiry_timestamp=row["expiry_timestamp"],
        status=Status(row["status"]),
    )
    return SetAside(
        claim=claim,
        reason=row["reason"] or None,
        document=row["document"],
        path=_path(row["path"]),
        type=row["content_type"],
        bytes=row["bytes"],
        sha256=row["sha256"],
        file=row["file"],
    )


def _path(text: str | None) -> tuple[str, ...] | None:
    """Parse the path in a header, which may be any text; return None if it is not a list of strings."""
    try:
        found = None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None
    return tuple(found) if isinstance(found, list) and all(isinstance(each, str) for each in found) else None


def moment(micros: int) -> datetime:
    """Return the UTC time for microseconds since the Unix epoch, at most the end of the year 9999."""
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def claim_id(claim: ClaimCheck | int | str) -> int:
    """Return the ID of a claim check that is given as such, as its ID, or as 16 hex digits.

    >>> claim_id("00000000000000ff")
    255
    """
    if isinstance(claim, str):
        if len(claim) != 16 or not set(claim) <= set("0123456789abcdef"):
            raise ValueError(f"a claim must be 16 lower-case hex digits, not {claim!r}")
        return int(claim, 16)
    found = claim.id if isinstance(claim, ClaimCheck) else claim
    if found is None or not 0 < found < 1 << 64:
        raise ValueError(f"a claim's ID must be from 1 to {(1 << 64) - 1}, not {found}")
    return found


def claim_of(fields: "_core._ClaimFields") -> ClaimCheck:
    """Return the dataclass for a claim check of the core."""
    validation = fields["validation"]
    return ClaimCheck(
        id=fields["id"],
        session=fields["session"],
        scope=fields["scope"],
        entity=fields["entity"],
        expiry_timestamp=fields["expiry_timestamp"],
        status=Status(fields["status"]),
        validation=None if validation is None else StoppingPointValidation(**validation),
        file=fields["file"],
    )
