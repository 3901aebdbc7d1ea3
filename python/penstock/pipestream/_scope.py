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
    """Whose children these are, in a session of either kind."""

    __slots__ = ("_digest", "_entity")

    def __init__(self, entity: SentT) -> None:
        """Use `Session.dehydrate`."""
        self._entity = entity
        self._digest: ScopeDigest | None = None

    @property
    def entity(self) -> SentT:
        """The entity whose children these are."""
        return self._entity

    @property
    def scope_id(self) -> int:
        """The ID of the children's scope on the wire; at layer 0 the entity's own."""
        scope = self._entity.child_scope
        return self._entity.scope_id if scope is None else scope.scope_id

    def __reduce__(self) -> NoReturn:
        """Refuse a pickle."""
        raise TypeError("a Scope belongs to a live session and cannot be pickled")

    def __repr__(self) -> str:
        """Say which, and of what."""
        return f"Scope(scope_id={self.scope_id}, entity={self._entity!r})"


class Scope(ScopeState[SentEntity]):
    """The children of an entity, sent within a ``with`` block; its end is the end of the children.

    At layer 1 they are in a scope of their own, which ends with a digest (decisions 9 to 11); at layer 0 they are in
    the entity's (decision 12). An exception in the block fails the entity, whose children are then not all there. The
    example of `Session` sends some.
    """

    __slots__ = ("_lock",)

    def __init__(self, entity: SentEntity) -> None:
        """Use `Session.dehydrate`."""
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
        """Send a child that has children itself; see `Session.dehydrate`. At most 7 deep."""
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
        """Say that these are all children; the end of a ``with`` block says it too."""
        self._entity.session.end_children(self._entity)

    def wait(self, timeout: float | None = None) -> Status:
        """Wait until the entity and everything below it is terminal; see `SentEntity.wait`."""
        return self._entity.wait(timeout)

    @property
    def digest(self) -> ScopeDigest | None:
        """The scope's digest, on which both ends agree, as soon as the peer has released the scope; else None.

        It is there once `wait` has returned. There is none at layer 0, nor for a session that ended before.
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
        """Give itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the children; where an exception came, fail the entity first."""
        if kind is None:
            self.end()
            return
        # The exception that is on its way is the one to be seen.
        with suppress(PipeStreamError):
            self._entity.fail(f"the sender failed: {kind.__name__}")
            self.end()
