"""What is opened at its first use, in each process anew."""

import os
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Opened"]

_T = TypeVar("_T")


class Opened(Generic[_T]):
    """Opens something when it is wanted. Nothing that is native survives a fork, so whoever was forked opens its own.

    >>> numbers = iter(range(10))
    >>> opened = Opened(lambda: next(numbers))
    >>> opened.get(), opened.get()
    (0, 0)
    """

    __slots__ = ("_found", "_open", "_process")

    def __init__(self, open: Callable[[], _T]) -> None:  # noqa: A002 - what it does
        """Take what opens it."""
        self._open = open
        self._found: _T | None = None
        self._process = 0

    def get(self) -> _T:
        """Give what is open in this process."""
        if self._found is None or self._process != os.getpid():
            self._found = self._open()
            self._process = os.getpid()
        return self._found
