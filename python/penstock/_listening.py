"""What listens: the life of a server in the core, whichever protocol it speaks."""

from types import TracebackType
from typing import NoReturn, Protocol, Self

__all__ = ["Listening"]


class _Native(Protocol):
    def address(self) -> str: ...
    def metrics_address(self) -> str | None: ...
    def close(self, grace: float) -> None: ...


class Listening:
    """Something of the core that listens until it is closed; a context manager closes it at the end."""

    __slots__ = ("_address",)

    _native: _Native

    def _listens(self) -> None:
        # Kept here because a forked child may want to connect to it.
        self._address = self._native.address()

    @property
    def address(self) -> str:
        """``HOST:PORT`` where it listens, with the port that was picked."""
        return self._address

    @property
    def metrics_address(self) -> str | None:
        """``HOST:PORT`` where metrics are served, with the port that was picked; None if they are not."""
        return self._native.metrics_address()

    def close(self, grace: float = 10.0) -> None:
        """Take no more connections, let what is open end for ``grace`` seconds, then close what is left.

        Sessions end by their clients, batches by being acknowledged. Closing again changes nothing.
        """
        self._native.close(grace)

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close, at once where an exception came."""
        self.close() if kind is None else self.close(grace=0)

    def __reduce__(self) -> NoReturn:
        """Refuse a pickle."""
        raise TypeError(f"a {type(self).__name__} is a live socket and cannot be pickled")

    def __repr__(self) -> str:
        """Say where it listens."""
        return f"<{type(self).__name__} {self.address}>"
