"""What callers may pass, and checks of dataclasses' fields, so that no frame exists that the wire cannot carry."""

import os
from typing import BinaryIO

__all__ = ["OCTET_STREAM", "PathLike", "Payload", "ReadableBuffer", "as_bytes", "check_uint"]

PathLike = str | os.PathLike[str]
"""The name of a file or folder."""
Payload = bytes | bytearray | PathLike | BinaryIO
"""What can be sent: bytes, a file by its name, or an open binary file, which is read to its end."""
OCTET_STREAM = "application/octet-stream"
"""The MIME type of anything."""

ReadableBuffer = bytes | bytearray | memoryview
"""What ``decode`` takes."""


def check_uint(owner: object, bits: int, *names: str) -> None:
    """Refuse a field that is not an integer of so many bits; None stands for "not set" where the type allows it."""
    for name in names:
        value = getattr(owner, name)
        if value is None:
            continue
        if not isinstance(value, int):
            raise TypeError(f"{type(owner).__name__}.{name} must be an int, not {type(value).__name__}")
        if not 0 <= value < 1 << bits:
            raise ValueError(f"{type(owner).__name__}.{name} must be from 0 to {(1 << bits) - 1}, not {value}")


def as_bytes(data: ReadableBuffer) -> bytes:
    """Give what decoders of the core take; bytes are not copied."""
    return data if isinstance(data, bytes) else memoryview(data).tobytes()
