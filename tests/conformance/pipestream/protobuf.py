"""A small reader and writer of protobuf's wire format, written from its public description, shared with nobody."""

import struct
from collections.abc import Iterable, Iterator

__all__ = ["ParseError", "field", "fields", "join", "varint"]

VARINT, FIXED64, LENGTH, GROUP, END_GROUP, FIXED32 = range(6)
MAX_GROUPS = 100

Value = int | bytes


class ParseError(ValueError):
    """These bytes are no protobuf message."""


def varint(value: int) -> bytes:
    """A number in groups of seven bits, lowest first; negative ones as 64-bit two's complement."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, value: int | bytes | str | float | bool) -> bytes:
    """One field; the Python type decides the wire type."""
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return varint(number << 3 | LENGTH) + varint(len(value)) + value
    if isinstance(value, float):
        return varint(number << 3 | FIXED32) + struct.pack("<f", value)
    return varint(number << 3 | VARINT) + varint(int(value))


def join(pairs: Iterable[tuple[int, int | bytes | str | float | bool | None]]) -> bytes:
    """A message of the fields that are not None."""
    return b"".join(field(number, value) for number, value in pairs if value is not None)


class _Cursor:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise ParseError("the message ends inside a field")
        self.at += count
        return self.data[self.at - count : self.at]

    def varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & ((1 << 64) - 1)
        raise ParseError("a number of more than ten bytes")

    def skip_group(self, number: int) -> None:
        open_groups = [number]
        while open_groups:
            inner, wire_type, _ = self.read()
            if wire_type == GROUP:
                open_groups.append(inner)
                if len(open_groups) > MAX_GROUPS:
                    raise ParseError("groups are nested too deeply")
            elif wire_type == END_GROUP and inner != open_groups.pop():
                raise ParseError("a group ends that was not the last to begin")

    def read(self) -> tuple[int, int, Value]:
        tag = self.varint()
        number, wire_type = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise ParseError(f"field number {number}")
        if wire_type == VARINT:
            return number, wire_type, self.varint()
        if wire_type == FIXED64:
            return number, wire_type, self.take(8)
        if wire_type == LENGTH:
            return number, wire_type, self.take(self.varint())
        if wire_type == FIXED32:
            return number, wire_type, self.take(4)
        if wire_type in (GROUP, END_GROUP):
            return number, wire_type, 0
        raise ParseError(f"wire type {wire_type}")


def fields(message: bytes, wire_types: dict[int, int]) -> Iterator[tuple[int, Value]]:
    """The fields that `wire_types` names, in order; others are checked and skipped."""
    cursor = _Cursor(message)
    while cursor.at < len(message):
        number, wire_type, value = cursor.read()
        if wire_type == END_GROUP:
            raise ParseError("a group ends that never began")
        if number in wire_types and wire_type != wire_types[number]:
            raise ParseError(f"field {number} with wire type {wire_type}")
        if wire_type == GROUP:
            cursor.skip_group(number)
        elif number in wire_types:
            yield number, value
