"""Messages that travel inside others: claim checks, and how far an entity was when it was set aside. Layer 2."""

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
    """How far an entity was when it was set aside: part of a ClaimCheck (section 6.5.2). None means "not set"."""

    state_checksum: bytes | None = None
    """Hash of the internal state."""
    bytes_processed: int | None = None
    """Bytes of the payload that were consumed, 64 bits."""
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
    """A reference to an entity that was set aside (section 6.5.2), and what has become of it. None means "not set".

    The ClaimCheck message carries all but ``session``, ``status`` and ``file``; the extension of a DEFERRED frame
    ``id`` and ``expiry_timestamp`` alone.

    >>> claim = ClaimCheck(id=0x17, scope=2, entity=3, expiry_timestamp=1_800_000_000_000_000)
    >>> claim.hex, str(claim.expires)
    ('0000000000000017', '2027-01-15 08:00:00+00:00')
    >>> ClaimCheck.decode(claim.encode()) == claim
    True
    """

    id: int | None = None
    """The claim's ID, 64 bits, random; shown as 16 hex digits."""
    session: str | None = None
    """The session in which the entity was deferred: whoever redeems it must know it."""
    scope: int | None = None
    """The entity's scope, 32 bits."""
    entity: int | None = None
    """The deferred entity, 32 bits."""
    expiry_timestamp: int | None = None
    """Microseconds since the Unix epoch from which the claim is refused, 64 bits."""
    status: Status = Status.DEFERRED
    """DEFERRED until it is redeemed, then PROCESSING, then the terminal status of who has redeemed it."""
    validation: StoppingPointValidation | None = None
    """How far the entity was."""
    file: str | None = None
    """Where the payload lies in the sink, ``SESSION/SCOPE/ENTITY``, if the work was done without a session."""

    def __post_init__(self) -> None:
        """Refuse numbers that the wire cannot carry."""
        check_uint(self, 64, "id", "expiry_timestamp")
        check_uint(self, 32, "scope", "entity")

    @property
    def hex(self) -> str | None:
        """The ID as receipts and headers have it: 16 hex digits."""
        return None if self.id is None else f"{self.id:016x}"

    @property
    def expires(self) -> datetime | None:
        """When the claim is refused, in UTC; what lies behind the year 9999 is its end."""
        return None if self.expiry_timestamp is None else moment(self.expiry_timestamp)

    def encode(self) -> bytes:
        """Give the protobuf message, without a length."""
        return _core.encode_claim(self)

    @classmethod
    def decode(cls, data: ReadableBuffer) -> "ClaimCheck":
        """Parse a message, all of ``data``.

        Raises:
            PipeStreamError: ENTITY_INVALID where it does not parse.
        """
        return claim_of(_core.decode_claim(as_bytes(data)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """An entity that a server has set aside, and its claim check: what `Server.claims` and `SinkReader.claims` list."""

    claim: ClaimCheck
    """The claim check; its ``status`` says what has become of it."""
    reason: str | None = None
    """Why it was set aside."""
    document: str | None = None
    """The document that it is a part of, where its sender said so."""
    path: tuple[str, ...] | None = None
    """The way down to it in the document, where its sender said so."""
    type: str | None = None
    """Its content type."""
    bytes: int | None = None
    """The bytes of its payload, where that came whole."""
    sha256: str | None = None
    """Their SHA-256 in hex."""
    file: str | None = None
    """Where its payload lies in the sink, ``SESSION/SCOPE/ENTITY``, if it was stored."""

    def to_dict(self) -> dict[str, Any]:
        """Give it as an object of JSON: what ``penstock pipestream claims --json`` prints, and a task's payload has.

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
    """Make the dataclass from what the core gave."""
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
    """Read what a header says of a path, which may be anything."""
    try:
        found = None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None
    return tuple(found) if isinstance(found, list) and all(isinstance(each, str) for each in found) else None


def moment(micros: int) -> datetime:
    """Give a time of the wire in UTC."""
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def claim_id(claim: ClaimCheck | int | str) -> int:
    """Give the ID of a claim check that is named by itself, by its number, or by its 16 hex digits.

    >>> claim_id("00000000000000ff")
    255
    """
    if isinstance(claim, str):
        if len(claim) != 16 or not set(claim) <= set("0123456789abcdef"):
            raise ValueError(f"a claim is 16 lower-case hex digits, not {claim!r}")
        return int(claim, 16)
    found = claim.id if isinstance(claim, ClaimCheck) else claim
    if found is None or not 0 < found < 1 << 64:
        raise ValueError(f"a claim's ID is from 1 to {(1 << 64) - 1}, not {found}")
    return found


def claim_of(fields: "_core._ClaimFields") -> ClaimCheck:
    """Make the dataclass from what the core gave."""
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
