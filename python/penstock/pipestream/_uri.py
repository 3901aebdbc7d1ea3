"""The ``pipestream`` URI of a session, a scope or an entity."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock import _core

__all__ = ["PipeStreamURI"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipeStreamURI:
    """A ``pipestream://`` URI of a session at a server, or of a scope or an entity in it.

    The form is ``pipestream://AUTHORITY/SESSION[/SCOPE.SCOPE...][/ENTITY]``, with scopes in decimal and the entity in
    hex.

    >>> uri = PipeStreamURI.parse("pipestream://sink.example:4433/a1b2c3d4/1.42/e5f6")
    >>> uri.authority, uri.session_id, uri.scope_path, uri.entity_id
    ('sink.example:4433', 'a1b2c3d4', (1, 42), 58870)
    >>> str(PipeStreamURI(authority="sink.example", session_id="a1b2c3d4", scope_path=[0], entity_id=7))
    'pipestream://sink.example/a1b2c3d4/0/7'
    """

    authority: str
    """``HOST`` or ``HOST:PORT``; an IPv6 address in brackets."""
    session_id: str
    """The session's ID, 1 to 128 letters, digits and ``-._~``; penstock uses 32 hex digits."""
    scope_path: Sequence[int] = ()
    """The scope IDs from the outermost to the innermost, at most 8; empty for the session's root scope."""
    entity_id: int | None = None
    """The entity's ID in the innermost scope; None if the URI names no entity."""

    def __post_init__(self) -> None:
        """Check that the URI would parse to the same parts, and convert the host to lower case.

        Raises:
            PipeStreamError: ENTITY_INVALID for an invalid part, which the message names.
        """
        _, parts = _core.make_uri(self.authority, self.session_id, list(self.scope_path), self.entity_id)
        object.__setattr__(self, "authority", parts[0])
        object.__setattr__(self, "scope_path", tuple(parts[2]))

    def __str__(self) -> str:
        """Return the URI."""
        return _core.make_uri(self.authority, self.session_id, list(self.scope_path), self.entity_id)[0]

    @classmethod
    def parse(cls, text: str) -> "PipeStreamURI":
        """Parse a URI.

        Raises:
            PipeStreamError: ENTITY_INVALID if it is not a valid URI; the message states why.
        """
        authority, session_id, scope_path, entity_id = _core.parse_uri(text)
        return cls(authority=authority, session_id=session_id, scope_path=scope_path, entity_id=entity_id)

    @property
    def address(self) -> str | None:
        """The server's ``HOST:PORT``; None if the URI names no port."""
        host, _, port = self.authority.rpartition(":")
        return self.authority if host and port.isdecimal() and not host.endswith(":") else None
