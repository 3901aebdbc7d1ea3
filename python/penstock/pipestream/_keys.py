"""The keys of entities and scopes in a session, and the reasons of failures."""

from dataclasses import dataclass
from typing import NamedTuple

from penstock.errors import ErrorKind, PipeStreamError
from penstock.pipestream._codes import ErrorCode

__all__ = ["EntityKey", "Reason", "ScopeKey"]


class ScopeKey(NamedTuple):
    """The key of one use of a scope ID in a session; IDs are used again after they have wrapped around.

    >>> ScopeKey(2)
    ScopeKey(scope_id=2, scope_use=0)
    """

    scope_id: int
    """The scope's ID on the wire."""
    scope_use: int = 0
    """How often the ID was used before."""


class EntityKey(NamedTuple):
    """The key of an entity, unique in its session; unlike entities, keys can be pickled.

    >>> EntityKey(0, 0, 7, 0).entity_id
    7
    """

    scope_id: int
    """The scope's ID on the wire."""
    scope_use: int
    """How often the scope's ID was used before."""
    entity_id: int
    """The entity's ID on the wire."""
    entity_use: int
    """How often the entity's ID was used before in this use of the scope."""


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason why an entity or a session failed, with its error code (PipeStream, section 11.4).

    >>> str(Reason(5, "PIPESTREAM_ENTITY_INVALID", "the page is broken"))
    'PIPESTREAM_ENTITY_INVALID (0x05): the page is broken'
    """

    code: int
    """The error code (`ErrorCode`, or a number of the peer that is not in it)."""
    name: str
    """The name of the code in the registry."""
    message: str
    """The description."""

    def __str__(self) -> str:
        """Return the name, the code and the message."""
        return f"{self.name} (0x{self.code:02X}): {self.message}"

    def error(self, kind: ErrorKind = "io") -> PipeStreamError:
        """Return an exception with this reason."""
        return PipeStreamError(self.message, kind, self.code, self.name)


def late(what: str) -> PipeStreamError:
    """Return the exception for a wait that has timed out."""
    code = ErrorCode.IDLE_TIMEOUT
    return PipeStreamError(f"{what} within the timeout", "deadline", code, f"PIPESTREAM_{code.name}")


def misuse(message: str) -> PipeStreamError:
    """Return the exception for a mistake of the caller."""
    code = ErrorCode.INTERNAL_ERROR
    return PipeStreamError(message, "misuse", code, f"PIPESTREAM_{code.name}")
