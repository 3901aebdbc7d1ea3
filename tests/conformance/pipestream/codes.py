"""The registries of the draft, and what all frames share."""

import struct
from enum import IntEnum

__all__ = ["MAX_LENGTH", "TERMINAL", "Code", "Stat", "WireError", "variable"]

MAX_LENGTH = 16_777_215


class Code(IntEnum):
    """The registry of error codes, section 11.4."""

    NO_ERROR = 0
    INTERNAL_ERROR = 1
    IDLE_TIMEOUT = 2
    CONTROL_RESET = 3
    INTEGRITY_ERROR = 4
    ENTITY_INVALID = 5
    ENTITY_TOO_LARGE = 6
    DEPTH_EXCEEDED = 7
    WINDOW_EXCEEDED = 8
    SCOPE_INVALID = 9
    CLAIM_EXPIRED = 10
    CLAIM_NOT_FOUND = 11
    LAYER_UNSUPPORTED = 12


class Stat(IntEnum):
    """Status codes, section 6.2.2."""

    UNSPECIFIED = 0
    PENDING = 1
    PROCESSING = 2
    COMPLETE = 3
    FAILED = 4
    CHECKPOINT = 5
    DEHYDRATING = 6
    REHYDRATING = 7
    YIELDED = 8
    DEFERRED = 9
    RETRYING = 10
    SKIPPED = 11
    ABANDONED = 12


TERMINAL = {Stat.COMPLETE, Stat.FAILED, Stat.SKIPPED, Stat.ABANDONED, Stat.DEFERRED}


class WireError(Exception):
    """What came breaks the format; `code` is what a receiver closes with."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code


def variable(frame_type: int, message: bytes, length: int | None = None) -> bytes:
    """A frame with a length before its message; `length` may lie."""
    return struct.pack(">BI", frame_type, len(message) if length is None else length) + message
