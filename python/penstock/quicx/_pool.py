"""PMAD, the allocator of blocks in fixed memory."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

from penstock import _core
from penstock.quicx._options import SIZE_CLASSES

__all__ = ["Block", "ClassStats", "Pool", "PoolStats"]


@dataclass(frozen=True, slots=True)
class ClassStats:
    """The use of a size class of a pool."""

    size: int
    """The bytes of a block."""
    blocks: int
    """The number of allocated blocks."""
    slabs: int
    """The number of slabs."""


@dataclass(frozen=True, slots=True)
class PoolStats:
    """The use of a pool."""

    bytes_used: int
    """The sum of the class sizes of all allocated blocks."""
    bytes_total: int
    """The bytes of the pool."""
    classes: tuple[ClassStats, ...]
    """The use of each size class."""


class Block:
    """A handle of a block in a `Pool`, which is invalid once the block is freed."""

    __slots__ = ("_native",)

    def __init__(self, native: "_core.QuicxBlock") -> None:
        """Blocks come from `Pool.store`; do not make them."""
        self._native = native

    @property
    def core(self) -> "_core.QuicxBlock":
        """The core's handle of the block."""
        return self._native

    def __reduce__(self) -> NoReturn:
        """Not picklable: it refers to memory of this process."""
        raise TypeError("a Block is memory of this process and cannot be pickled")


class Pool:
    """A pool of blocks in fixed memory, which any number of threads may share.

    Args:
        bytes: The bytes of the pool, including headers; by default 64 MiB.
        size_classes: The sizes of blocks in bytes: ascending multiples of 16, up to 1 MiB. By default the powers of two
            from 16 to 4,096.

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
        """Reserve the memory; the system provides its pages when they are first used.

        Raises:
            QuicxError: Of kind "misuse" if the size classes are invalid or do not fit into the pool.
        """
        self._native = _core.QuicxPool(bytes, list(SIZE_CLASSES if size_classes is None else size_classes))

    def store(self, content: bytes) -> Block:
        """Store bytes in a new block and return it.

        Raises:
            QuicxError: Of kind "limit" if they exceed the largest size class, or the pool is full.
        """
        return Block(self._native.store(content))

    def read(self, block: Block) -> bytes:
        """Return the bytes in a block.

        Raises:
            QuicxError: Of kind "misuse" if the block was freed or belongs to another pool.
        """
        return self._native.read(block.core)

    def free(self, block: Block) -> None:
        """Free a block.

        Raises:
            QuicxError: Of kind "misuse" if the block was freed before or belongs to another pool; nothing changes then.
        """
        self._native.free(block.core)

    @property
    def stats(self) -> PoolStats:
        """The current use of the pool."""
        used, total, classes = self._native.stats()
        return PoolStats(used, total, tuple(ClassStats(*each) for each in classes))

    def __reduce__(self) -> NoReturn:
        """Not picklable: it is memory of this process."""
        raise TypeError("a Pool is memory of this process and cannot be pickled")
