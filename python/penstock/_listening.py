"""The base class of servers in the core, whatever their protocol."""

from types import TracebackType
from typing import NoReturn, Protocol, Self

__all__ = ["Listening"]


class _Native(Protocol):
    def address(self) -> str: ...
    def metrics_address(self) -> str | None: ...
    def close(self, grace: float) -> None: ...


class Listening:
    """A server that listens until it is closed. As a context manager it closes at the end."""

    __slots__ = ("_address",)

    _native: _Native

    def _listens(self) -> None:
        # Kept, because a forked child cannot ask the core, but may connect to the server.
        self._address = self._native.address()

    @property
    def address(self) -> str:
        """The address on which the server listens, ``HOST:PORT``, with the actual port."""
        return self._address

    @property
    def metrics_address(self) -> str | None:
        """The address on which metrics are served, ``HOST:PORT``, with the actual port; None if they are not."""
        return self._native.metrics_address()

    def close(self, grace: float = 10.0) -> None:
        """Accept no more connections, wait up to ``grace`` seconds for open work to end, then close what is left.

        Sessions end when their clients close them, batches when they are acknowledged. Closing again has no effect.
        """
        self._native.close(grace)

    def __enter__(self) -> Self:
        """Return the server itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the server; after an exception, without a grace period."""
        self.close() if kind is None else self.close(grace=0)

    def __reduce__(self) -> NoReturn:
        """Not picklable: it holds a live socket."""
        raise TypeError(f"a {type(self).__name__} is a live socket and cannot be pickled")

    def __repr__(self) -> str:
        """Return the class and the address."""
        return f"<{type(self).__name__} {self.address}>"
