"""PMAD: blocks in fixed memory."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

from penstock import _core
from penstock.quicx._options import SIZE_CLASSES

__all__ = ["Block", "ClassStats", "Pool", "PoolStats"]


@dataclass(frozen=True, slots=True)
class ClassStats:
    """What a size class of a pool holds."""

    size: int
    """Bytes of a block."""
    blocks: int
    """Allocated blocks."""
    slabs: int
    """Slabs that it has."""


@dataclass(frozen=True, slots=True)
class PoolStats:
    """What a pool holds."""

    bytes_used: int
    """The sum of the class sizes of all allocated blocks."""
    bytes_total: int
    """Bytes of the pool."""
    classes: tuple[ClassStats, ...]
    """For each size class."""


class Block:
    """A block of a `Pool`: a handle that is worth nothing once the block is freed."""

    __slots__ = ("_native",)

    def __init__(self, native: "_core.QuicxBlock") -> None:
        """Wrap what the core gave."""
        self._native = native

    @property
    def core(self) -> "_core.QuicxBlock":
        """What the core knows it by."""
        return self._native

    def __reduce__(self) -> NoReturn:
        """Refuse a pickle."""
        raise TypeError("a Block is memory of this process and cannot be pickled")


class Pool:
    """A pool of blocks in fixed memory, for any number of threads (decision 14).

    Args:
        bytes: Bytes of the pool, headers included: 64 MiB.
        size_classes: Bytes of its blocks, ascending, multiples of 16 up to 1 MiB: 16 to 4,096 by powers of two.

    >>> pool = Pool(1 << 20)
    >>> block = pool.store(b"hello")
    >>> pool.read(block), pool.stats.bytes_used
    (b'hello', 16)
    >>> pool.free(block)
    >>> pool.free(block)
    Traceback (most recent call last):
    ...
    penstock.errors.QuicxError: the block was freed before
    """

    __slots__ = ("_native",)

    def __init__(self, bytes: int = 64 << 20, *, size_classes: Iterable[int] | None = None) -> None:  # noqa: A002
        """Reserve the memory, which is touched when it is used.

        Raises:
            QuicxError: Of kind "misuse", where the classes are wrong or the pool has no room for them.
        """
        self._native = _core.QuicxPool(bytes, list(SIZE_CLASSES if size_classes is None else size_classes))

    def store(self, content: bytes) -> Block:
        """Give a block that holds these bytes.

        Raises:
            QuicxError: Of kind "limit", where they are above the largest class, or nothing is free.
        """
        return Block(self._native.store(content))

    def read(self, block: Block) -> bytes:
        """Give what a block holds.

        Raises:
            QuicxError: Of kind "misuse", where it was freed, or is another pool's.
        """
        return self._native.read(block.core)

    def free(self, block: Block) -> None:
        """Free a block.

        Raises:
            QuicxError: Of kind "misuse", where it was freed before, or is another pool's; nothing is changed then.
        """
        self._native.free(block.core)

    @property
    def stats(self) -> PoolStats:
        """What it holds now."""
        used, total, classes = self._native.stats()
        return PoolStats(used, total, tuple(ClassStats(*each) for each in classes))

    def __reduce__(self) -> NoReturn:
        """Refuse a pickle."""
        raise TypeError("a Pool is memory of this process and cannot be pickled")
