"""The frames of layer 2 (decision 20, `proto/penstock/pipestream/v1/extensions.proto`) and what they carry.

As in `wire`, encoders take whatever they are told: `Session("")` is a frame, too.
"""

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from . import protobuf
from .codes import Code, WireError, variable
from .protobuf import FIXED32, LENGTH, VARINT

__all__ = [
    "DECODERS",
    "HMAC",
    "SESSION_ID",
    "Action",
    "Claim",
    "ClaimQuery",
    "ClaimRedeem",
    "ClaimResponse",
    "Mode",
    "Policy",
    "Reason",
    "Resume",
    "Session",
    "Token",
    "Validation",
    "decode",
    "decode_deferred",
    "decode_policy",
    "decode_token",
    "decode_validation",
    "decode_yielded",
    "deferred",
    "yielded",
]

SESSION_ID = re.compile(r"[0-9a-f]{32}")
HMAC = 32
STATUSES = 13
REASONS = 6


class Mode(IntEnum):
    """CompletionMode."""

    UNSPECIFIED = 0
    STRICT = 1
    LENIENT = 2
    BEST_EFFORT = 3
    QUORUM = 4


class Action(IntEnum):
    """FailureAction."""

    UNSPECIFIED = 0
    FAIL = 1
    SKIP = 2
    RETRY = 3
    DEFER = 4


class Reason(IntEnum):
    """YieldReason, section 6.5.1.1."""

    EXTERNAL_CALL = 1
    RATE_LIMITED = 2
    AWAITING_SIBLING = 3
    AWAITING_APPROVAL = 4
    RESOURCE_BUSY = 5


@dataclass(frozen=True)
class Claim:
    """ClaimCheck; `validation` is the encoded StoppingPointValidation."""

    claim: int = 0
    entity: int = 0
    scope: int = 0
    expiry: int = 0
    validation: bytes | None = None

    def message(self) -> bytes:
        return protobuf.join(enumerate((self.claim, self.entity, self.scope, self.expiry, self.validation), 1))


@dataclass(frozen=True)
class ClaimQuery:
    """0xC1."""

    claim: int

    def encode(self) -> bytes:
        return variable(0xC1, protobuf.field(1, self.claim))


@dataclass(frozen=True)
class ClaimResponse:
    """0xC2. None: not set."""

    claim: int
    found: bool | None = None
    check: Claim | None = None
    status: int | None = None
    file: str | None = None

    def encode(self) -> bytes:
        check = self.check.message() if self.check else None
        return variable(0xC2, protobuf.join(enumerate((self.claim, self.found, check, self.status, self.file), 1)))


@dataclass(frozen=True)
class ClaimRedeem:
    """0xC3."""

    claim: int
    session: str

    def encode(self) -> bytes:
        return variable(0xC3, protobuf.join(((1, self.claim), (2, self.session))))


@dataclass(frozen=True)
class Resume:
    """0xC4."""

    scope: int
    entity: int
    token: bytes

    def encode(self) -> bytes:
        return variable(0xC4, protobuf.join(enumerate((self.scope, self.entity, self.token), 1)))


@dataclass(frozen=True)
class Session:
    """0xC5. `received` and `sent` are of sessions that survive their connection."""

    session: str
    received: int | None = None
    sent: int | None = None

    def encode(self) -> bytes:
        return variable(0xC5, protobuf.join(enumerate((self.session, self.received, self.sent), 1)))


@dataclass(frozen=True)
class Policy:
    """CompletionPolicy, in the order of its fields. None: not set."""

    mode: int | None = None
    max_retries: int | None = None
    retry_delay_ms: int | None = None
    timeout_ms: int | None = None
    ratio: float | None = None
    on_timeout: int | None = None
    on_failure: int | None = None

    def message(self) -> bytes:
        return protobuf.join(enumerate(vars(self).values(), 1))


@dataclass(frozen=True)
class Validation:
    """StoppingPointValidation."""

    state_checksum: bytes = b""
    bytes_processed: int = 0
    children_complete: int = 0
    children_total: int = 0
    is_resumable: bool = False
    checkpoint_ref: str = ""


@dataclass(frozen=True)
class Token:
    """A yield token: a YieldToken message, and behind it what binds it to its session and entity."""

    reason: int
    state: bytes
    validation: Validation
    hmac: bytes


def _fields(data: bytes, types: dict[int, int]) -> dict[int, int | bytes]:
    return dict(protobuf.fields(data, types))


def _number(found: dict[int, int | bytes], number: int, bits: int = 32) -> int:
    value = found.get(number, 0)
    assert isinstance(value, int)
    return value & (1 << bits) - 1


def _bytes(found: dict[int, int | bytes], number: int) -> bytes:
    value = found.get(number, b"")
    assert isinstance(value, bytes)
    return value


def _enum(found: dict[int, int | bytes], number: int, values: int) -> int:
    value = _number(found, number)
    if value >= values:
        raise protobuf.ParseError(f"unknown enum value {value}")
    return value


def _session_id(found: dict[int, int | bytes], number: int) -> str:
    text = _bytes(found, number).decode()
    if not SESSION_ID.fullmatch(text):
        raise protobuf.ParseError(f"{text!r} is no session ID")
    return text


def _decode_query(data: bytes) -> ClaimQuery:
    return ClaimQuery(_number(_fields(data, {1: VARINT}), 1, 64))


def _decode_claim(data: bytes) -> Claim:
    found = _fields(data, dict.fromkeys((1, 2, 3, 4), VARINT) | {5: LENGTH})
    numbers = (_number(found, 1, 64), _number(found, 2), _number(found, 3), _number(found, 4, 64))
    return Claim(*numbers, _bytes(found, 5) if 5 in found else None)


def _decode_response(data: bytes) -> ClaimResponse:
    found = _fields(data, {1: VARINT, 2: VARINT, 3: LENGTH, 4: VARINT, 5: LENGTH})
    known = bool(found.get(2))
    if known != (3 in found):
        raise protobuf.ParseError("found and claim_check disagree")
    check = _decode_claim(_bytes(found, 3)) if known else None
    status = _enum(found, 4, STATUSES) if 4 in found else None
    file = _bytes(found, 5).decode() if 5 in found else None
    return ClaimResponse(_number(found, 1, 64), known, check, status, file)


def _decode_redeem(data: bytes) -> ClaimRedeem:
    found = _fields(data, {1: VARINT, 2: LENGTH})
    return ClaimRedeem(_number(found, 1, 64), _session_id(found, 2))


def _decode_resume(data: bytes) -> Resume:
    found = _fields(data, {1: VARINT, 2: VARINT, 3: LENGTH})
    scope = _number(found, 1)
    if scope > 0xFFFF:
        raise WireError(Code.SCOPE_INVALID, f"scope {scope}")
    return Resume(scope, _number(found, 2), _bytes(found, 3))


def _decode_session(data: bytes) -> Session:
    found = _fields(data, {1: LENGTH, 2: VARINT, 3: VARINT})
    if 3 in found and 2 not in found:
        raise protobuf.ParseError("sent without received")
    received, sent = (_number(found, number, 64) if number in found else None for number in (2, 3))
    return Session(_session_id(found, 1), received, sent)


Frame = ClaimQuery | ClaimResponse | ClaimRedeem | Resume | Session

DECODERS: dict[int, Callable[[bytes], Frame]] = {
    0xC1: _decode_query,
    0xC2: _decode_response,
    0xC3: _decode_redeem,
    0xC4: _decode_resume,
    0xC5: _decode_session,
}


def decode(frame_type: int, message: bytes) -> Frame:
    """The frame of one of the types of `DECODERS`."""
    try:
        return DECODERS[frame_type](message)
    except ValueError as error:
        raise WireError(Code.ENTITY_INVALID, f"the message does not parse: {error}") from error


def decode_policy(data: bytes) -> Policy:
    """A policy as a header carries it."""
    found = _fields(data, dict.fromkeys((1, 2, 3, 4, 6, 7), VARINT) | {5: FIXED32})
    ratio = struct.unpack("<f", _bytes(found, 5))[0] if 5 in found else None
    numbers = {number: _number(found, number) for number in (1, 2, 3, 4, 6, 7) if number in found}
    first = [numbers.get(number) for number in (1, 2, 3, 4)]
    return Policy(*first, ratio, numbers.get(6), numbers.get(7))


def decode_validation(data: bytes) -> Validation:
    found = _fields(data, {1: LENGTH, 2: VARINT, 3: VARINT, 4: VARINT, 5: VARINT, 6: LENGTH})
    numbers = (_number(found, 2, 64), _number(found, 3), _number(found, 4))
    return Validation(_bytes(found, 1), *numbers, bool(found.get(5)), _bytes(found, 6).decode())


def decode_token(token: bytes) -> Token:
    """A token of the program under test: its last bytes are the HMAC, the others parse."""
    found = _fields(token[:-HMAC], {1: VARINT, 2: LENGTH, 3: LENGTH})
    reason = _enum(found, 1, REASONS)
    return Token(reason, _bytes(found, 2), decode_validation(_bytes(found, 3)), token[-HMAC:])


def yielded(reason: int, token: bytes) -> bytes:
    """The extension of YIELDED, section 6.5.1."""
    return bytes([reason]) + len(token).to_bytes(3) + token


def decode_yielded(extension: bytes | None) -> tuple[int, bytes]:
    """Reason and token of YIELDED."""
    assert extension is not None
    assert int.from_bytes(extension[1:4]) == len(extension) - 4
    return extension[0], extension[4:]


def deferred(claim: int, expiry: int) -> bytes:
    """The extension of DEFERRED, section 6.5.2."""
    return struct.pack(">QQ", claim, expiry)


def decode_deferred(extension: bytes | None) -> tuple[int, int]:
    """Claim check and expiry of DEFERRED."""
    assert extension is not None
    claim, expiry = struct.unpack(">QQ", extension)
    return claim, expiry
