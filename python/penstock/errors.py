"""The errors of penstock: one class for each protocol, each with the protocol's code.

Decide by class, ``kind`` and ``code``, never by the text of a message. All of them survive a pickle, and so the way
from a Spark worker to the driver: what ``__init__`` takes is what ``args`` holds.
"""

from collections.abc import Sequence
from typing import Literal

__all__ = [
    "DocumentsError",
    "Error",
    "ErrorKind",
    "LumberjackError",
    "PimpError",
    "PipeStreamError",
    "QuicxError",
    "SparkError",
    "VgiError",
]

ErrorKind = Literal["malformed", "violation", "limit", "misuse", "io", "deadline"]
"""Whose fault an error is: the peer's bytes do not parse, the peer broke a rule, a limit was exceeded, the caller
used the API wrongly, a socket or file failed, something took too long."""


class Error(Exception):
    """What every error of penstock descends from."""


class PipeStreamError(Error):
    """PipeStream failed: the session as a whole, or one entity of it where ``entity`` says so."""

    def __init__(
        self,
        message: str,
        code: int,
        name: str,
        kind: ErrorKind,
        scope: int | None = None,
        entity: int | None = None,
    ) -> None:
        """Take what the Rust core knows of the error."""
        super().__init__(message, code, name, kind, scope, entity)
        self.message: str = message
        """What happened, without the code."""
        self.code: int = code
        """The number in the registry of PipeStream error codes (section 11.4)."""
        self.name: str = name
        """The registry's name, ``PIPESTREAM_ENTITY_INVALID`` for example."""
        self.kind: ErrorKind = kind
        """Whose fault it is."""
        self.scope: int | None = scope
        """The scope it is about, if it is about one."""
        self.entity: int | None = entity
        """The entity it is about, if it is about one."""

    def __str__(self) -> str:
        """Name the code where it says anything, what happened, and where."""
        where = "" if self.entity is None else f" (scope {self.scope}, entity {self.entity})"
        # INTERNAL_ERROR is what everything has that the registry has no code for: a file, a certificate, a misuse.
        code = "" if self.code == 1 else f"{self.name} (0x{self.code:02X}): "
        return f"{code}{self.message}{where}"


class DocumentsError(Error):
    """Documents could not be taken apart or put together at all.

    A part that fails on its own is no exception: it is a part with the status FAILED and a reason.
    """

    def __init__(self, message: str, kind: ErrorKind) -> None:
        """Say what happened, and whose fault it is."""
        super().__init__(message, kind)
        self.message: str = message
        """What happened."""
        self.kind: ErrorKind = kind
        """Whose fault it is."""

    def __str__(self) -> str:
        """Say what happened."""
        return self.message


class SparkError(Error):
    """Spark cannot be started or used as asked: no Java, a PySpark that does not fit, an option that is wrong."""


class LumberjackError(Error):
    """Lumberjack failed: a receiver or a sender as a whole."""

    def __init__(self, message: str, kind: ErrorKind) -> None:
        """Say what happened, and whose fault it is."""
        super().__init__(message, kind)
        self.message: str = message
        """What happened."""
        self.kind: ErrorKind = kind
        """Whose fault it is."""
        self.code: str = kind
        """The protocol has no codes for errors; the kind stands for one."""

    def __str__(self) -> str:
        """Say what happened."""
        return self.message


class QuicxError(Error):
    """Quicx failed: a daemon has refused something, or cannot be reached or started."""

    def __init__(self, message: str, kind: ErrorKind, code: int | None = None, accepted: Sequence[int] = ()) -> None:
        """Say what happened, whose fault it is, and what the daemon said."""
        super().__init__(message, kind, code, accepted)
        self.message: str = message
        """What happened."""
        self.kind: ErrorKind = kind
        """Whose fault it is."""
        self.code: int | None = code
        """The code of the daemon's ERROR: 1 the queue is full, 2 invalid, 3 too large, 4 a type that is not taken. None
        where there was no ERROR."""
        self.accepted: tuple[int, ...] = tuple(accepted)
        """Where many were submitted together: the IDs of those that were taken, 0 for each that was refused."""

    def __str__(self) -> str:
        """Say what happened, with the daemon's code."""
        return self.message if self.code is None else f"{self.message} (0x{self.code:02X})"


class PimpError(Error):
    """PIMP failed: a buffer has refused something, a job has failed, or neither can be reached."""

    def __init__(self, message: str, kind: ErrorKind, code: str) -> None:
        """Say what happened, whose fault it is, and the code's name."""
        super().__init__(message, kind, code)
        self.message: str = message
        """What happened."""
        self.kind: ErrorKind = kind
        """Whose fault it is."""
        self.code: str = code
        """The code's name: MALFORMED, UNAUTHORIZED, NOT_FOUND, CONFLICT, EXPIRED, LOST, PRECONDITION_FAILED,
        TOO_LARGE, UNSUPPORTED_MEDIA_TYPE and UNEXPECTED_STATUS of a buffer; FAILED, CANCELLED, STALLED and CORRUPT of a
        job; MISUSE; for what the protocol has no code for, ``kind`` in capitals: IO, DEADLINE."""

    def __str__(self) -> str:
        """Say what happened."""
        return self.message


class VgiError(Error):
    """A connection of vgi failed: bytes that are no calls, a limit, a socket, a file.

    What a method raised is an ``RpcError`` of ``penstock.vgi``.
    """

    def __init__(self, message: str, kind: ErrorKind) -> None:
        """Say what happened, and whose fault it is."""
        super().__init__(message, kind)
        self.message: str = message
        """What happened."""
        self.kind: ErrorKind = kind
        """Whose fault it is."""

    def __str__(self) -> str:
        """Say what happened."""
        return self.message
