"""PipeStream's frames, written from draft-krickert-pipestream-00 and the project's decisions.

Nothing here is shared with penstock: two readings of one text must agree, or a test says where they do not. Encoders
take whatever they are told, so that an evil peer can say what a good one would not.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from . import layer2, protobuf
from .codes import MAX_LENGTH, TERMINAL, Code, Stat, WireError, variable
from .layer2 import ClaimQuery, ClaimRedeem, ClaimResponse, Resume, Session
from .protobuf import LENGTH, VARINT

__all__ = [
    "CONNECTION_LEVEL",
    "MAX_LENGTH",
    "Barrier",
    "Capabilities",
    "Checkpoint",
    "Code",
    "Digest",
    "Error",
    "Frame",
    "Private",
    "Stat",
    "Status",
    "WireError",
    "decode_frame",
    "variable",
]

CONNECTION_LEVEL = 0xFFFF_FFFF


class _Short(Exception):
    """More bytes are needed."""


@dataclass(frozen=True)
class Status:
    """0x50. `extension` holds the bytes after the cursor; `e` says otherwise than they do."""

    stat: int
    entity: int
    scope: int = 0
    depth: int = 0
    cursor: int | None = None
    extension: bytes | None = None
    e: bool | None = None
    flags: int = 0
    reserved: int = 0

    def encode(self) -> bytes:
        extended = self.extension is not None if self.e is None else self.e
        byte = self.stat << 4 | extended << 3 | (self.cursor is not None) << 2 | self.depth >> 1
        low = (self.depth & 1) << 15 | self.flags
        out = struct.pack(">BBHIHH", 0x50, byte, low, self.entity, self.scope, self.reserved)
        if self.cursor is not None:
            out += struct.pack(">I", self.cursor)
        return out + (self.extension or b"")

    @property
    def terminal(self) -> bool:
        return self.stat in TERMINAL


@dataclass(frozen=True)
class Digest:
    """0x54."""

    scope: int
    processed: int
    succeeded: int
    failed: int
    deferred: int
    root: bytes

    def encode(self) -> bytes:
        counters = (self.processed, self.succeeded, self.failed, self.deferred)
        return struct.pack(">BBH4Q32s", 0x54, 0, self.scope, *counters, self.root)


@dataclass(frozen=True)
class Barrier:
    """0x55."""

    released: bool
    barrier: int
    parent: int
    reserved: int = 0

    def encode(self) -> bytes:
        return struct.pack(">BBHI", 0x55, self.released << 7 | self.reserved, self.barrier, self.parent)


@dataclass(frozen=True)
class Capabilities:
    """0x80. None: not set."""

    layer0: bool | None = True
    layer1: bool | None = True
    layer2: bool | None = False
    max_scope_depth: int | None = None
    max_entities_per_scope: int | None = None
    max_window_size: int | None = None

    def encode(self) -> bytes:
        numbers = (self.max_scope_depth, self.max_entities_per_scope, self.max_window_size)
        values = (self.layer0, self.layer1, self.layer2, *numbers)
        return variable(0x80, protobuf.join(enumerate(values, 1)))


@dataclass(frozen=True)
class Checkpoint:
    """0x81."""

    checkpoint_id: str = ""
    sequence: int = 0
    entity: int = 0
    scope: int = 0
    flags: int = 0
    timeout_ms: int = 0

    def encode(self) -> bytes:
        values = (self.checkpoint_id, self.sequence, self.entity, self.scope, self.flags, self.timeout_ms)
        return variable(0x81, protobuf.join(enumerate(values, 1)))


@dataclass(frozen=True)
class Error:
    """0xC0, decision 20."""

    code: int
    scope: int = 0
    entity: int = 0
    message: str = ""

    def encode(self) -> bytes:
        return variable(0xC0, protobuf.join(enumerate((self.code, self.scope, self.entity, self.message), 1)))


@dataclass(frozen=True)
class Private:
    """0xC1-0xFF: skipped by its length. What it held is forgotten. Below layer 2 that is so of its frames, too."""

    frame_type: int

    def encode(self, message: bytes = b"") -> bytes:
        return variable(self.frame_type, message)


Frame = Status | Digest | Barrier | Capabilities | Checkpoint | Error | Private
Frame = Frame | Session | ClaimQuery | ClaimResponse | ClaimRedeem | Resume


Numbers = tuple[int, ...]


def _message(data: bytes, numbers: int, texts: Numbers = (), wide: Numbers = ()) -> dict[int, int | str]:
    """The fields 1 to `numbers`: `texts` are strings, `wide` 64-bit numbers, the others 32-bit numbers."""
    types = {number: LENGTH if number in texts else VARINT for number in range(1, numbers + 1)}
    found: dict[int, int | str] = {}
    try:
        for number, value in protobuf.fields(data, types):
            if isinstance(value, bytes):
                found[number] = value.decode()
            else:
                found[number] = value if number in wide else value & 0xFFFF_FFFF
    except ValueError as error:
        raise WireError(Code.ENTITY_INVALID, f"the message does not parse: {error}") from error
    return found


def _number(found: Mapping[int, int | str], number: int) -> int:
    return int(found.get(number, 0))


def _decode_capabilities(data: bytes) -> Capabilities:
    found = _message(data, 6)
    flags = [bool(found.get(number)) for number in (1, 2, 3)]
    numbers = [None if found.get(number) is None else _number(found, number) for number in (4, 5, 6)]
    return Capabilities(*flags, *numbers)


def _decode_checkpoint(data: bytes) -> Checkpoint:
    found = _message(data, 6, texts=(1,), wide=(2,))
    return Checkpoint(str(found.get(1, "")), *(_number(found, number) for number in range(2, 7)))


def _decode_error(data: bytes) -> Error:
    found = _message(data, 4, texts=(4,))
    return Error(_number(found, 1), _number(found, 2), _number(found, 3), str(found.get(4, "")))


DECODERS: dict[int, Callable[[bytes], Frame]] = {
    0x80: _decode_capabilities,
    0x81: _decode_checkpoint,
    0xC0: _decode_error,
}


def _decode_variable(data: bytes, with_layer_2: bool) -> tuple[Frame, int]:
    frame_type = data[0]
    if frame_type not in (0x80, 0x81) and frame_type < 0xC0:
        raise WireError(Code.ENTITY_INVALID, f"frame type 0x{frame_type:02X}")
    if len(data) < 5:
        raise _Short
    (length,) = struct.unpack_from(">I", data, 1)
    if length > MAX_LENGTH:
        raise WireError(Code.ENTITY_TOO_LARGE, f"a frame of {length} bytes")
    if len(data) < 5 + length:
        raise _Short
    message = data[5 : 5 + length]
    if with_layer_2 and frame_type in layer2.DECODERS:
        return layer2.decode(frame_type, message), 5 + length
    decode = DECODERS.get(frame_type)
    return (decode(message) if decode else Private(frame_type)), 5 + length


def _extension_length(stat: int, data: bytes) -> int:
    if stat == Stat.DEFERRED:
        return 16
    if stat != Stat.YIELDED:
        raise WireError(Code.ENTITY_INVALID, "E=1 on a code without an extension")
    if not data:
        raise _Short
    if not 1 <= data[0] <= 5:
        raise WireError(Code.ENTITY_INVALID, f"yield reason {data[0]}")
    if len(data) < 4:
        raise _Short
    return 4 + int.from_bytes(data[1:4])


def _decode_status(data: bytes) -> tuple[Status, int]:
    if len(data) < 2:
        raise _Short
    stat, extended, has_cursor = data[1] >> 4, bool(data[1] & 8), bool(data[1] & 4)
    if stat > 0xC:
        raise WireError(Code.ENTITY_INVALID, f"Stat 0x{stat:X}")
    if extended and stat not in (Stat.YIELDED, Stat.DEFERRED):
        raise WireError(Code.ENTITY_INVALID, "E=1 on a code without an extension")
    if not extended and stat in (Stat.YIELDED, Stat.DEFERRED):
        raise WireError(Code.ENTITY_INVALID, "E=0 on a code that needs an extension")
    size = 16 if has_cursor else 12
    if len(data) < size:
        raise _Short
    _, byte, low, entity, scope, _ = struct.unpack_from(">BBHIHH", data)
    depth = (byte & 3) << 1 | low >> 15
    cursor = int.from_bytes(data[12:16]) if has_cursor else None
    extension = None
    if extended:
        length = _extension_length(stat, data[size:])
        if len(data) < size + length:
            raise _Short
        extension = data[size : size + length]
        size += length
    return Status(stat, entity, scope, depth, cursor, extension), size


def decode_frame(data: bytes, *, with_layer_2: bool = False) -> tuple[Frame, int] | None:
    """The first frame and how many bytes it took; None when more must come. Without layer 2 its frames are private."""
    if not data:
        return None
    try:
        if data[0] >= 0x80:
            return _decode_variable(data, with_layer_2)
        if data[0] == 0x50:
            return _decode_status(data)
        if data[0] not in (0x54, 0x55):
            raise WireError(Code.ENTITY_INVALID, f"frame type 0x{data[0]:02X}")
        size = 68 if data[0] == 0x54 else 8
        if len(data) < size:
            return None
        if data[0] == 0x54:
            return Digest(*struct.unpack_from(">xxH4Q32s", data)), size
        _, bits, barrier, parent = struct.unpack_from(">BBHI", data)
        return Barrier(bool(bits & 0x80), barrier, parent), size
    except _Short:
        return None
