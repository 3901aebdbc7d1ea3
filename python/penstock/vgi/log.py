"""The messages of a method to its caller: log messages and errors (vgi-rpc, section 8)."""

import json
import linecache
import traceback
from enum import Enum
from typing import Any, ClassVar

from penstock.vgi.metadata import LOG_EXTRA_KEY, LOG_LEVEL_KEY, LOG_MESSAGE_KEY

__all__ = ["Level", "Message"]


class Level(Enum):
    """The severity of a message. A message of level EXCEPTION is raised at the caller as an RpcError."""

    EXCEPTION = "EXCEPTION"
    ERROR = "ERROR"
    WARN = "WARN"
    INFO = "INFO"
    DEBUG = "DEBUG"
    TRACE = "TRACE"


class Message:
    """A log message for the caller.

    ```python
    >>> from penstock.vgi import Level, Message
    >>> Message(Level.INFO, "half way", rows="500").add_to_metadata()
    {'vgi_rpc.log_level': 'INFO', 'vgi_rpc.log_message': 'half way', 'vgi_rpc.log_extra': '{"rows": "500"}'}

    ```
    """

    MAX_TRACEBACK_CHARS: ClassVar[int] = 16_000
    """The length beyond which a traceback is truncated (vgi-rpc, section 8)."""
    MAX_TRACEBACK_FRAMES: ClassVar[int] = 5
    """The number of innermost frames that are listed one by one."""

    __slots__ = ("extra", "level", "message")

    def __init__(self, level: Level, message: str, **kwargs: object) -> None:
        """Create a message.

        Args:
            level: The level.
            message: The text.
            kwargs: Further fields by name.
        """
        self.level = level
        self.message = message
        self.extra: dict[str, Any] | None = kwargs or None

    def __repr__(self) -> str:
        """Return the parts of the message, for debugging."""
        return f"Message({self.level}, {self.message!r}, extra={self.extra!r})"

    def __eq__(self, other: object) -> bool:
        """Return whether level, text and further fields are equal."""
        if not isinstance(other, Message):
            return NotImplemented
        return (self.level, self.message, self.extra) == (other.level, other.message, other.extra)

    __hash__ = None  # type: ignore[assignment]

    def extra_json(self) -> str | None:
        """Return the further fields as JSON, or None without any; values without a JSON type become strings."""
        return None if self.extra is None else json.dumps(self.extra, default=str)

    def add_to_metadata(self, metadata: dict[str, str] | None = None) -> dict[str, str]:
        """Return a copy of the metadata with this message added."""
        result = dict(metadata or {})
        result[LOG_LEVEL_KEY.decode()] = self.level.value
        result[LOG_MESSAGE_KEY.decode()] = self.message
        extra = self.extra_json()
        if extra is not None:
            result[LOG_EXTRA_KEY.decode()] = extra
        return result

    @classmethod
    def from_exception(cls, exc: BaseException) -> "Message":
        """Create a message of level EXCEPTION from an exception, with its traceback, frames, cause and context."""
        extra: dict[str, Any] = {
            "exception_type": type(exc).__name__,
            "exception_message": str(exc),
            "traceback": _cut("".join(traceback.format_exception(exc))),
            "frames": _frames(exc, cls.MAX_TRACEBACK_FRAMES),
        }
        if exc.__cause__ is not None:
            extra["cause"] = _cut("".join(traceback.format_exception(exc.__cause__)))
        if exc.__context__ is not None and not exc.__suppress_context__:
            extra["context"] = _cut("".join(traceback.format_exception(exc.__context__)))
        return cls(Level.EXCEPTION, f"{type(exc).__name__}: {exc}", **extra)

    @classmethod
    def exception(cls, message: str, **kwargs: object) -> "Message":
        """Create a message of level EXCEPTION."""
        return cls(Level.EXCEPTION, message, **kwargs)

    @classmethod
    def error(cls, message: str, **kwargs: object) -> "Message":
        """Create a message of level ERROR."""
        return cls(Level.ERROR, message, **kwargs)

    @classmethod
    def warn(cls, message: str, **kwargs: object) -> "Message":
        """Create a message of level WARN."""
        return cls(Level.WARN, message, **kwargs)

    @classmethod
    def info(cls, message: str, **kwargs: object) -> "Message":
        """Create a message of level INFO."""
        return cls(Level.INFO, message, **kwargs)

    @classmethod
    def debug(cls, message: str, **kwargs: object) -> "Message":
        """Create a message of level DEBUG."""
        return cls(Level.DEBUG, message, **kwargs)

    @classmethod
    def trace(cls, message: str, **kwargs: object) -> "Message":
        """Create a message of level TRACE."""
        return cls(Level.TRACE, message, **kwargs)


def _cut(text: str) -> str:
    limit = Message.MAX_TRACEBACK_CHARS
    return text if len(text) <= limit else text[:limit] + "\n… <traceback truncated>"


def _frames(exc: BaseException, count: int) -> list[dict[str, Any]]:
    found = []
    for frame, line in list(traceback.walk_tb(exc.__traceback__))[-count:]:
        code = frame.f_code
        found.append(
            {
                "file": code.co_filename,
                "line": line,
                "function": code.co_name,
                "code": linecache.getline(code.co_filename, line).strip() or None,
            }
        )
    return found
