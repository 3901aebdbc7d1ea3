"""The children of an entity, for asyncio."""

from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self

from penstock.aio._loop import Starting
from penstock.aio.pipestream._entity import SentEntity
from penstock.errors import PipeStreamError
from penstock.pipestream._codes import ErrorCode, Status
from penstock.pipestream._fields import OCTET_STREAM, Payload
from penstock.pipestream._frames import ScopeDigest
from penstock.pipestream._policy import CompletionPolicy
from penstock.pipestream._scope import ScopeState

__all__ = ["Scope"]


class Scope(ScopeState[SentEntity]):
    """The children of an entity, which are sent in an ``async with`` block; leaving the block ends them.

    An exception or a cancellation in the block fails the parent, because its children are incomplete. The example of
    `Session` sends children.
    """

    __slots__ = ()

    async def send(
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
        return await self._entity.session.send(
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
    ) -> "Starting[Scope]":
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

    async def announce_failed(
        self,
        reason: str,
        *,
        code: int = ErrorCode.INTERNAL_ERROR,
        content_type: str = OCTET_STREAM,
        metadata: Mapping[str, str] | None = None,
    ) -> SentEntity:
        """Announce a child that cannot be delivered; see `Session.announce_failed`."""
        return await self._entity.session.announce_failed(
            reason, code=code, parent=self, content_type=content_type, metadata=metadata
        )

    async def end(self) -> None:
        """End the children: no more will be sent. Leaving the ``async with`` block does the same."""
        await self._entity.session.end_children(self._entity)

    async def wait(self, timeout: float | None = None) -> Status:
        """Wait until the entity and everything below it is terminal; see `SentEntity.wait`."""
        return await self._entity.wait(timeout)

    @property
    def digest(self) -> ScopeDigest | None:
        """The scope's digest, on which both ends agree; None until the peer has released the scope.

        It is available once `wait` has returned. There is none at layer 0, nor if the session ended before the release.
        """
        scope = self._entity.child_scope
        if self._digest is None and scope is not None:
            # A session that ended before the scope was released has none.
            with suppress(PipeStreamError):
                fields = self._entity.session._native.wait_released(scope, 0)
                self._digest = None if fields is None else ScopeDigest(**fields)
        return self._digest

    async def __aenter__(self) -> Self:
        """Return the scope itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the children; after an exception, fail the parent."""
        if kind is None:
            try:
                await self.end()
            except BaseException as stopped:
                self._give_up(type(stopped))
                raise
        else:
            self._give_up(kind)

    def _give_up(self, kind: type[BaseException]) -> None:
        # Without an await, so that no other task runs in between. The caller's exception must not be replaced.
        with suppress(PipeStreamError):
            message = f"the sender failed: {kind.__name__}"
            self._entity.session._native.give_up(self._entity.key, ErrorCode.INTERNAL_ERROR, message)
