"""The errors of penstock: one class for each protocol, all with ``message``, ``kind`` and ``code``.

Decide by class, ``kind`` and ``code``, never by the text of a message. An error is also what Python calls its kind:

| kind | whose fault it is | also caught by |
|---|---|---|
| ``malformed`` | the peer's bytes, or a file's, do not parse | |
| ``violation`` | the peer broke a rule of the protocol | |
| ``limit`` | a limit was exceeded | |
| ``misuse`` | the caller used the API wrongly | ``except ValueError`` |
| ``io`` | a socket, a file or a disk failed | ``except OSError`` |
| ``deadline`` | something took too long | ``except TimeoutError`` |
| ``application`` | code of a user raised, in another process | |

All errors can be pickled, so that they survive the way from a Spark worker to the driver.

```python
>>> from penstock import Error, LumberjackError
>>> try:
...     raise LumberjackError("no acknowledgement within 30 s", "deadline")
... except TimeoutError as error:
...     print(isinstance(error, LumberjackError), isinstance(error, Error), error.kind)
True True deadline

```
"""

import sys
from collections.abc import Sequence
from typing import Any, Literal, Self, cast

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

ErrorKind = Literal["malformed", "violation", "limit", "misuse", "io", "deadline", "application"]
"""Whose fault an error is; the module has a table."""

_PYTHON: dict[str, type[Exception]] = {"misuse": ValueError, "io": OSError, "deadline": TimeoutError}


class Error(Exception):
    """The base of all errors of penstock.

    Args:
        message: What happened.
        kind: Whose fault it is; the module has a table.
        code: The protocol's code, if it has one for this.
    """

    message: str
    """What happened, without the code."""
    kind: ErrorKind
    """Whose fault it is."""
    code: int | str | None
    """The protocol's code, if it has one for this."""

    def __new__(cls, *args: Any, **named: Any) -> Self:
        """Return an error that is also the exception which Python has for its kind."""
        kind = named.get("kind", args[1] if len(args) > 1 else None)
        variant = _variant(cls, kind, cls._more())
        # OSError, if it is a base, has a constructor of its own.
        return cast("Self", super(Error, variant).__new__(variant))

    def __init__(self, message: str, kind: ErrorKind, code: int | str | None = None) -> None:
        """Make an error. See the class for the arguments."""
        self.message = message
        self.kind = kind
        self.code = code
        self.args = (message, kind, code)

    @classmethod
    def _more(cls) -> tuple[type[Exception], ...]:
        """Return further bases, which another library has for its errors."""
        return ()

    def __str__(self) -> str:
        """Return what happened."""
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what makes an equal error elsewhere: the class as it is declared, and its arguments."""
        declared = next(cls for cls in type(self).__mro__ if cls not in _VARIANTS.values())
        return declared, self.args


_VARIANTS: dict[tuple[type, ...], type[Error]] = {}
"""The subclasses that `_variant` has made, by their bases."""


def _variant(cls: type[Error], kind: str | None, more: tuple[type[Exception], ...]) -> type[Error]:
    """Return the subclass for errors of a kind, or the class itself where Python has no exception for the kind."""
    others = [base for base in (*more, _PYTHON.get(kind or "")) if base is not None and not issubclass(cls, base)]
    bases = (cls, *others)
    if not others:
        return cls
    if bases not in _VARIANTS:
        named = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
        _VARIANTS[bases] = type(cls.__name__, bases, named)
    return _VARIANTS[bases]


class PipeStreamError(Error):
    """PipeStream failed: the whole session, or one entity of it if ``entity`` is set.

    Args:
        message: What happened, without the code.
        kind: Whose fault it is.
        code: The number in the registry of error codes (PipeStream, section 11.4).
        name: The registry's name, for example ``PIPESTREAM_ENTITY_INVALID``.
        scope: The ID of the scope, if the error is about one.
        entity: The ID of the entity, if the error is about one.
    """

    code: int
    """The number in the registry of error codes (PipeStream, section 11.4)."""

    def __init__(
        self,
        message: str,
        kind: ErrorKind,
        code: int,
        name: str,
        scope: int | None = None,
        entity: int | None = None,
    ) -> None:
        """Make an error. See the class for the arguments."""
        super().__init__(message, kind, code)
        self.args = (message, kind, code, name, scope, entity)
        self.name: str = name
        """The registry's name, for example ``PIPESTREAM_ENTITY_INVALID``."""
        self.scope: int | None = scope
        """The ID of the scope, if the error is about one."""
        self.entity: int | None = entity
        """The ID of the entity, if the error is about one."""

    def __str__(self) -> str:
        """Return the code, what happened, and where."""
        where = "" if self.entity is None else f" (scope {self.scope}, entity {self.entity})"
        # INTERNAL_ERROR is the code of everything that the registry has none for: a file, a certificate, a misuse.
        code = "" if self.code == 1 else f"{self.name} (0x{self.code:02X}): "
        return f"{code}{self.message}{where}"


class DocumentsError(Error):
    """Documents could not be split or reassembled at all.

    A part that fails on its own raises nothing: it is a part with the status FAILED and a reason.
    """

    code: None
    """Documents have no codes."""


class SparkError(Error):
    """Spark cannot be started or used as asked: no Java, a PySpark version that does not fit, a wrong option.

    Once PySpark is loaded, it is also a ``PySparkException``.
    """

    code: None
    """These errors have no codes."""

    def __init__(self, message: str, kind: ErrorKind = "misuse", code: None = None) -> None:
        """Make an error. See the class for the arguments."""
        for base in self._more():
            base.__init__(self, message=message)  # type: ignore[call-arg]
        super().__init__(message, kind, code)

    def __new__(cls, message: str, kind: ErrorKind = "misuse", code: None = None) -> Self:
        """Return an error that is also the exception which Python has for its kind."""
        return super().__new__(cls, message, kind, code)

    @classmethod
    def _more(cls) -> tuple[type[Exception], ...]:
        pyspark = sys.modules.get("pyspark.errors")
        return () if pyspark is None else (pyspark.PySparkException,)


class LumberjackError(Error):
    """Lumberjack failed: a receiver or a sender as a whole."""

    code: str
    """The kind: the protocol has no codes."""

    def __init__(self, message: str, kind: ErrorKind, code: str | None = None) -> None:
        """Make an error. See the base class for the arguments."""
        super().__init__(message, kind, code or kind)


class QuicxError(Error):
    """Quicx failed: a daemon rejected something, or cannot be reached or started.

    Args:
        message: What happened, without the code.
        kind: Whose fault it is.
        code: The code of the daemon's ERROR: 1 the queue is full, 2 invalid, 3 too large, 4 a type that it does not
            accept. ``None`` if there was no ERROR.
        accepted: If tasks were submitted together, the ID of each accepted task, 0 for each rejected one.
    """

    code: int | None
    """The code of the daemon's ERROR, ``None`` if there was none."""

    def __init__(self, message: str, kind: ErrorKind, code: int | None = None, accepted: Sequence[int] = ()) -> None:
        """Make an error. See the class for the arguments."""
        super().__init__(message, kind, code)
        self.accepted: tuple[int, ...] = tuple(accepted)
        """If tasks were submitted together, the ID of each accepted task, 0 for each rejected one."""
        self.args = (message, kind, code, self.accepted)

    def __str__(self) -> str:
        """Return what happened, with the daemon's code."""
        return self.message if self.code is None else f"{self.message} (0x{self.code:02X})"


class PimpError(Error):
    """PIMP failed: a buffer rejected something, a job failed, or neither can be reached.

    Args:
        message: What happened.
        kind: Whose fault it is.
        code: The code's name: MALFORMED, UNAUTHORIZED, NOT_FOUND, CONFLICT, EXPIRED, LOST, PRECONDITION_FAILED,
            TOO_LARGE, UNSUPPORTED_MEDIA_TYPE and UNEXPECTED_STATUS of a buffer; FAILED, CANCELLED, STALLED and CORRUPT
            of a job; MISUSE; if the protocol has no code, ``kind`` in capitals: IO, DEADLINE.
    """

    code: str
    """The code's name, for example NOT_FOUND; the class has a list."""

    def __init__(self, message: str, kind: ErrorKind, code: str) -> None:
        """Make an error. See the class for the arguments."""
        super().__init__(message, kind, code)


class VgiError(Error):
    """A vgi connection failed: bytes that are no call, a limit, a socket, a file.

    If a method raised, the error is a ``penstock.vgi.RpcError``.
    """

    code: None
    """The connection has no codes."""
