"""Open an object at its first use, separately in each process."""

import os
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Opened"]

_T = TypeVar("_T")


class Opened(Generic[_T]):
    """Opens an object when it is first used. Native objects do not survive a fork, so a forked process opens its own.

    >>> numbers = iter(range(10))
    >>> opened = Opened(lambda: next(numbers))
    >>> opened.get(), opened.get()
    (0, 0)
    """

    __slots__ = ("_found", "_open", "_process")

    def __init__(self, open: Callable[[], _T]) -> None:  # noqa: A002 - what it does
        """Keep the function that opens the object."""
        self._open = open
        self._found: _T | None = None
        self._process = 0

    def get(self) -> _T:
        """Return the object of this process; open it if necessary."""
        if self._found is None or self._process != os.getpid():
            self._found = self._open()
            self._process = os.getpid()
        return self._found
