"""Types of arguments, and checks of dataclass fields, so that no frame has values that the wire cannot carry."""

import os
from typing import BinaryIO

__all__ = ["OCTET_STREAM", "PathLike", "Payload", "ReadableBuffer", "as_bytes", "check_uint"]

PathLike = str | os.PathLike[str]
"""The path of a file or folder."""
Payload = bytes | bytearray | PathLike | BinaryIO
"""The payload of an entity: bytes, the path of a file, or an open binary file, which is read to its end."""
OCTET_STREAM = "application/octet-stream"
"""The default MIME type."""

ReadableBuffer = bytes | bytearray | memoryview
"""The data that ``decode`` accepts."""


def check_uint(owner: object, bits: int, *names: str) -> None:
    """Reject fields that are not unsigned integers of this many bits; None means "not set" and is accepted."""
    for name in names:
        value = getattr(owner, name)
        if value is None:
            continue
        if not isinstance(value, int):
            raise TypeError(f"{type(owner).__name__}.{name} must be an int, not {type(value).__name__}")
        if not 0 <= value < 1 << bits:
            raise ValueError(f"{type(owner).__name__}.{name} must be from 0 to {(1 << bits) - 1}, not {value}")


def as_bytes(data: ReadableBuffer) -> bytes:
    """Return the data as bytes, which the core's decoders accept; bytes are not copied."""
    return data if isinstance(data, bytes) else memoryview(data).tobytes()
