"""Headers of entity streams and the digest of a scope, from the same texts as `wire`."""

import hashlib
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from . import protobuf
from .protobuf import LENGTH, VARINT
from .wire import Code, WireError

__all__ = ["EMPTY_SHA256", "MAX_HEADER", "Chunk", "Header", "decode_header", "merkle_root"]

MAX_HEADER = 1 << 20
EMPTY_SHA256 = hashlib.sha256().digest()


@dataclass(frozen=True)
class Chunk:
    """ChunkInfo."""

    total: int
    index: int
    offset: int

    def encode(self) -> bytes:
        return protobuf.join(((1, self.total), (2, self.index), (3, self.offset)))


@dataclass(frozen=True)
class Header:
    """EntityHeader; `policy` is the encoded CompletionPolicy."""

    entity: int
    parent: int = 0
    scope: int = 0
    layer: int = 0
    content_type: str = "application/octet-stream"
    payload_length: int = 0
    checksum: bytes | None = EMPTY_SHA256
    metadata: Mapping[str, str] = field(default_factory=dict)
    chunk: Chunk | None = None
    policy: bytes | None = None

    def message(self) -> bytes:
        numbers = enumerate((self.entity, self.parent, self.scope, self.layer), 1)
        out = protobuf.join(numbers)
        out += protobuf.join(((5, self.content_type), (6, self.payload_length), (7, self.checksum)))
        for key, value in self.metadata.items():
            out += protobuf.field(8, protobuf.join(((1, key), (2, value))))
        return out + protobuf.join(((9, self.chunk.encode() if self.chunk else None), (10, self.policy)))

    def encode(self) -> bytes:
        message = self.message()
        return struct.pack(">I", len(message)) + message


HEADER_TYPES = dict.fromkeys((1, 2, 3, 4, 6), VARINT) | dict.fromkeys((5, 7, 8, 9, 10), LENGTH)
POLICY_TYPES = {1: VARINT, 2: VARINT, 3: VARINT, 4: VARINT, 5: protobuf.FIXED32, 6: VARINT, 7: VARINT}
POLICY_ENUMS = {1: 4, 6: 4, 7: 4}


def _check_policy(data: bytes) -> None:
    for number, value in protobuf.fields(data, POLICY_TYPES):
        if number in POLICY_ENUMS and isinstance(value, int) and value > POLICY_ENUMS[number]:
            raise protobuf.ParseError(f"unknown enum value {value}")


def _decode_chunk(data: bytes) -> Chunk:
    found = dict(protobuf.fields(data, {1: VARINT, 2: VARINT, 3: VARINT}))
    return Chunk(*(int(found.get(number, 0)) for number in (1, 2, 3)))


def _parse_header(message: bytes) -> Header:
    numbers = dict.fromkeys((1, 2, 3, 4, 6), 0)
    content_type, checksum, metadata = "", b"", dict[str, str]()
    chunk: Chunk | None = None
    policy: bytes | None = None
    for number, value in protobuf.fields(message, HEADER_TYPES):
        if isinstance(value, int):
            numbers[number] = value if number == 6 else value & 0xFFFF_FFFF
        elif number == 5:
            content_type = value.decode()
        elif number == 7:
            checksum = value
        elif number == 8:
            pair = {key: bytes(text).decode() for key, text in protobuf.fields(value, {1: LENGTH, 2: LENGTH})}
            metadata[pair.get(1, "")] = pair.get(2, "")
        elif number == 9:
            chunk = _decode_chunk(value)
        else:
            _check_policy(value)
            policy = value
    entity, parent, scope, layer, length = (numbers[number] for number in (1, 2, 3, 4, 6))
    return Header(entity, parent, scope, layer, content_type, length, checksum, metadata, chunk, policy)


def decode_header(data: bytes) -> tuple[Header, int] | None:
    """The header of an entity stream and how many bytes it took with its length; None when more must come."""
    if len(data) < 4:
        return None
    (length,) = struct.unpack_from(">I", data)
    if length > MAX_HEADER:
        raise WireError(Code.ENTITY_TOO_LARGE, f"a header of {length} bytes")
    if len(data) < 4 + length:
        return None
    try:
        return _parse_header(data[4 : 4 + length]), 4 + length
    except ValueError as error:
        raise WireError(Code.ENTITY_INVALID, f"the header does not parse: {error}") from error


def merkle_root(leaves: Iterable[tuple[int, int]]) -> bytes:
    """Section 9.4, over pairs of ID and Stat code: an odd last node goes up as it is."""
    nodes = [hashlib.sha256(struct.pack(">IB", entity, stat & 0xF)).digest() for entity, stat in sorted(leaves)]
    if not nodes:
        return EMPTY_SHA256
    while len(nodes) > 1:
        pairs = [hashlib.sha256(left + right).digest() for left, right in zip(nodes[::2], nodes[1::2], strict=False)]
        nodes = pairs + nodes[len(pairs) * 2 :]
    return nodes[0]
