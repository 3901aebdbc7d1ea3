"""What is work, or reads files, runs in a thread of the loop's pool."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

__all__ = ["each"]

_T = TypeVar("_T")


async def each(items: Iterable[_T]) -> AsyncIterator[_T]:
    """Give what an iterator gives that takes its time for each. Nothing is made before it is asked for."""
    iterator = iter(items)
    end = object()
    while (item := await asyncio.to_thread(next, iterator, end)) is not end:
        yield item  # type: ignore[misc]  # it is no end
