"""Names of entities and scopes in a session, and why something failed."""

from dataclasses import dataclass
from typing import NamedTuple

from penstock.errors import ErrorKind, PipeStreamError
from penstock.pipestream._codes import ErrorCode

__all__ = ["EntityKey", "Reason", "ScopeKey"]


class ScopeKey(NamedTuple):
    """Names one use of a scope ID in a session: IDs come again after they have wrapped around (decision 6).

    >>> ScopeKey(2)
    ScopeKey(scope_id=2, scope_use=0)
    """

    scope_id: int
    """The ID on the wire."""
    scope_use: int = 0
    """How often the ID was used before."""


class EntityKey(NamedTuple):
    """Names one entity of a session for good; keys survive a pickle, where entities do not.

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
    """Why an entity or a session failed, by the registry of error codes (section 11.4).

    >>> str(Reason(5, "PIPESTREAM_ENTITY_INVALID", "the page is broken"))
    'PIPESTREAM_ENTITY_INVALID (0x05): the page is broken'
    """

    code: int
    """The number in the registry of error codes."""
    name: str
    """The registry's name."""
    message: str
    """In words."""

    def __str__(self) -> str:
        """Say all three."""
        return f"{self.name} (0x{self.code:02X}): {self.message}"

    def error(self, kind: ErrorKind = "io") -> PipeStreamError:
        """Make the exception that says the same."""
        return PipeStreamError(self.message, kind, self.code, self.name)


def late(what: str) -> PipeStreamError:
    """Make the exception of a wait that took longer than its time-out."""
    code = ErrorCode.IDLE_TIMEOUT
    return PipeStreamError(f"{what} within the time-out", "deadline", code, f"PIPESTREAM_{code.name}")


def misuse(message: str) -> PipeStreamError:
    """Make the exception for a caller's mistake."""
    code = ErrorCode.INTERNAL_ERROR
    return PipeStreamError(message, "misuse", code, f"PIPESTREAM_{code.name}")
