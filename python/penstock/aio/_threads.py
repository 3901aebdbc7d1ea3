"""Run iterators that compute or read files in threads of the loop's pool."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

__all__ = ["each"]

_T = TypeVar("_T")


async def each(items: Iterable[_T]) -> AsyncIterator[_T]:
    """Yield the items of a blocking iterable. Each item is made in a thread, and only when it is requested."""
    iterator = iter(items)
    end = object()
    while (item := await asyncio.to_thread(next, iterator, end)) is not end:
        yield item  # type: ignore[misc]  # it is not the end marker
