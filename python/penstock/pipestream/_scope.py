"""The children of an entity."""

import threading
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Generic, NoReturn, Protocol, Self, TypeVar

from penstock.errors import PipeStreamError
from penstock.pipestream._codes import ErrorCode, Status
from penstock.pipestream._entity import SentEntity
from penstock.pipestream._fields import OCTET_STREAM, Payload
from penstock.pipestream._frames import ScopeDigest
from penstock.pipestream._keys import EntityKey, ScopeKey
from penstock.pipestream._policy import CompletionPolicy

__all__ = ["Scope"]


SentT = TypeVar("SentT", bound="_Sent")


class _Sent(Protocol):
    @property
    def scope_id(self) -> int: ...
    @property
    def child_scope(self) -> ScopeKey | None: ...
    @property
    def key(self) -> EntityKey: ...


class ScopeState(Generic[SentT]):
    """The parent of a scope's children, for blocking and asyncio sessions."""

    __slots__ = ("_digest", "_entity")

    def __init__(self, entity: SentT) -> None:
        """Scopes come from `Session.dehydrate`; do not make them."""
        self._entity = entity
        self._digest: ScopeDigest | None = None

    @property
    def entity(self) -> SentT:
        """The parent of the children."""
        return self._entity

    @property
    def scope_id(self) -> int:
        """The children's scope ID on the wire; at layer 0 that of the parent's own scope."""
        scope = self._entity.child_scope
        return self._entity.scope_id if scope is None else scope.scope_id

    def __reduce__(self) -> NoReturn:
        """Not picklable: it belongs to a live session."""
        raise TypeError("a Scope belongs to a live session and cannot be pickled")

    def __repr__(self) -> str:
        """Return the scope's ID and its parent."""
        return f"Scope(scope_id={self.scope_id}, entity={self._entity!r})"


class Scope(ScopeState[SentEntity]):
    """The children of an entity, which are sent in a ``with`` block; leaving the block ends them.

    From layer 1 on the children have a scope of their own, which ends with a digest; at layer 0 they are in the
    parent's scope. An exception in the block fails the parent, because its children are incomplete. The example of
    `Session` sends children.
    """

    __slots__ = ("_lock",)

    def __init__(self, entity: SentEntity) -> None:
        """Scopes come from `Session.dehydrate`; do not make them."""
        super().__init__(entity)
        self._lock = threading.Lock()

    def send(
        self,
        payload: Payload = b"",
        *,
        layer: int = 0,
        content_type: str = OCTET_STREAM,
        metadata: Mapping[str, str] | None = None,
        chunk_size: int | None = None,
        label: str | bytes = b"",
    ) -> SentEntity:
        """Send a child; see `Session.send`."""
        return self._entity.session.send(
            payload,
            parent=self,
            layer=layer,
            content_type=content_type,
            metadata=metadata,
            chunk_size=chunk_size,
            label=label,
        )

    def dehydrate(
        self,
        payload: Payload = b"",
        *,
        layer: int = 0,
        content_type: str = OCTET_STREAM,
        metadata: Mapping[str, str] | None = None,
        chunk_size: int | None = None,
        policy: CompletionPolicy | None = None,
        label: str | bytes = b"",
    ) -> "Scope":
        """Send a child that has children itself, at most 7 levels deep; see `Session.dehydrate`."""
        return self._entity.session.dehydrate(
            payload,
            parent=self,
            layer=layer,
            content_type=content_type,
            metadata=metadata,
            chunk_size=chunk_size,
            policy=policy,
            label=label,
        )

    def announce_failed(
        self,
        reason: str,
        *,
        code: int = ErrorCode.INTERNAL_ERROR,
        content_type: str = OCTET_STREAM,
        metadata: Mapping[str, str] | None = None,
    ) -> SentEntity:
        """Announce a child that cannot be delivered; see `Session.announce_failed`."""
        return self._entity.session.announce_failed(
            reason, code=code, parent=self, content_type=content_type, metadata=metadata
        )

    def end(self) -> None:
        """End the children: no more will be sent. Leaving the ``with`` block does the same."""
        self._entity.session.end_children(self._entity)

    def wait(self, timeout: float | None = None) -> Status:
        """Wait until the entity and everything below it is terminal; see `SentEntity.wait`."""
        return self._entity.wait(timeout)

    @property
    def digest(self) -> ScopeDigest | None:
        """The scope's digest, on which both ends agree; None until the peer has released the scope.

        It is available once `wait` has returned. There is none at layer 0, nor if the session ended before the release.
        """
        with self._lock:
            scope = self._entity.child_scope
            if self._digest is None and scope is not None:
                self._digest = self._take_digest(scope)
        return self._digest

    def _take_digest(self, scope: ScopeKey) -> ScopeDigest | None:
        try:
            fields = self._entity.session._native.wait_released(scope, 0)
        except PipeStreamError:
            # The session ended before the scope was released.
            return None
        return None if fields is None else ScopeDigest(**fields)

    def __enter__(self) -> Self:
        """Return the scope itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the children; after an exception, fail the parent first."""
        if kind is None:
            self.end()
            return
        # The caller's exception must not be replaced by one of ours.
        with suppress(PipeStreamError):
            self._entity.fail(f"the sender failed: {kind.__name__}")
            self.end()
