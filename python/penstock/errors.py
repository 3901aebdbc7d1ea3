"""The exceptions of penstock: one class for each protocol, with the protocol's error codes.

Distinguish errors by class, ``kind`` and ``code``, never by the text of a message. All of them can be pickled, and so
can travel from a Spark worker to the driver: ``args`` holds the arguments of ``__init__``.
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
"""The kind of an error: the peer's bytes do not parse ("malformed"), the peer broke a rule of the protocol
("violation"), a limit was exceeded ("limit"), the caller used the API wrongly ("misuse"), a socket or file failed
("io"), or a timeout expired ("deadline")."""


class Error(Exception):
    """The base class of all errors of penstock."""


class PipeStreamError(Error):
    """A PipeStream error: of the whole session, or of one entity if ``entity`` is set."""

    def __init__(
        self,
        message: str,
        code: int,
        name: str,
        kind: ErrorKind,
        scope: int | None = None,
        entity: int | None = None,
    ) -> None:
        """Make the error from its message, code and kind, and the entity that it concerns."""
        super().__init__(message, code, name, kind, scope, entity)
        self.message: str = message
        """A description of what happened, without the code."""
        self.code: int = code
        """The number in the registry of PipeStream error codes (PipeStream, section 11.4)."""
        self.name: str = name
        """The name in that registry, for example ``PIPESTREAM_ENTITY_INVALID``."""
        self.kind: ErrorKind = kind
        """The kind of the error."""
        self.scope: int | None = scope
        """The ID of the scope that the error concerns, if any."""
        self.entity: int | None = entity
        """The ID of the entity that the error concerns, if any."""

    def __str__(self) -> str:
        """Return the code if it is specific, the message, and the entity if there is one."""
        where = "" if self.entity is None else f" (scope {self.scope}, entity {self.entity})"
        # Errors without a code in the registry (files, certificates, misuse) have INTERNAL_ERROR, which adds nothing.
        code = "" if self.code == 1 else f"{self.name} (0x{self.code:02X}): "
        return f"{code}{self.message}{where}"


class DocumentsError(Error):
    """An error that keeps a document from being split, reassembled, sent or verified at all.

    A single part that fails does not raise: it is a part with the status FAILED and a reason.
    """

    def __init__(self, message: str, kind: ErrorKind) -> None:
        """Make the error from its message and its kind."""
        super().__init__(message, kind)
        self.message: str = message
        """A description of what happened."""
        self.kind: ErrorKind = kind
        """The kind of the error."""

    def __str__(self) -> str:
        """Return the message."""
        return self.message


class SparkError(Error):
    """Spark cannot be started or used as requested: Java is missing, PySpark is incompatible, an option is wrong."""


class LumberjackError(Error):
    """A Lumberjack error: a receiver or a sender failed as a whole."""

    def __init__(self, message: str, kind: ErrorKind) -> None:
        """Make the error from its message and its kind."""
        super().__init__(message, kind)
        self.message: str = message
        """A description of what happened."""
        self.kind: ErrorKind = kind
        """The kind of the error."""
        self.code: str = kind
        """The same as ``kind``: the protocol has no error codes."""

    def __str__(self) -> str:
        """Return the message."""
        return self.message


class QuicxError(Error):
    """A Quicx error: a daemon has rejected something, or cannot be reached or started."""

    def __init__(self, message: str, kind: ErrorKind, code: int | None = None, accepted: Sequence[int] = ()) -> None:
        """Make the error from its message, its kind and the daemon's answer."""
        super().__init__(message, kind, code, accepted)
        self.message: str = message
        """A description of what happened."""
        self.kind: ErrorKind = kind
        """The kind of the error."""
        self.code: int | None = code
        """The code of the daemon's ERROR: 1 the queue is full, 2 the request is invalid, 3 the payload is too large,
        4 the type is not accepted. None if the daemon sent no ERROR."""
        self.accepted: tuple[int, ...] = tuple(accepted)
        """For tasks that were submitted together: the ID of each accepted task, 0 for each rejected one."""

    def __str__(self) -> str:
        """Return the message, with the daemon's code if there is one."""
        return self.message if self.code is None else f"{self.message} (0x{self.code:02X})"


class PimpError(Error):
    """A PIMP error: a buffer has rejected something, a job has failed, or the buffer cannot be reached."""

    def __init__(self, message: str, kind: ErrorKind, code: str) -> None:
        """Make the error from its message, its kind and the code's name."""
        super().__init__(message, kind, code)
        self.message: str = message
        """A description of what happened."""
        self.kind: ErrorKind = kind
        """The kind of the error."""
        self.code: str = code
        """The code's name. From a buffer: MALFORMED, UNAUTHORIZED, NOT_FOUND, CONFLICT, EXPIRED, LOST,
        PRECONDITION_FAILED, TOO_LARGE, UNSUPPORTED_MEDIA_TYPE and UNEXPECTED_STATUS. From a job: FAILED, CANCELLED,
        STALLED and CORRUPT. From the caller: MISUSE. Without a code of the protocol, ``kind`` in capitals: IO,
        DEADLINE."""

    def __str__(self) -> str:
        """Return the message."""
        return self.message


class VgiError(Error):
    """A vgi error: a connection, a socket or a file failed, a limit was exceeded, or bytes are not valid calls.

    An exception that a remote method raised is a ``penstock.vgi.RpcError`` instead.
    """

    def __init__(self, message: str, kind: ErrorKind) -> None:
        """Make the error from its message and its kind."""
        super().__init__(message, kind)
        self.message: str = message
        """A description of what happened."""
        self.kind: ErrorKind = kind
        """The kind of the error."""

    def __str__(self) -> str:
        """Return the message."""
        return self.message
