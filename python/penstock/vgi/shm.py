"""Shared memory beside a pipe (section 11). The core does the work when calls are made; this is what it is made of."""

import mmap
import os
from collections.abc import Callable

import pyarrow as pa

from penstock import _core
from penstock.errors import VgiError
from penstock.vgi.utils import IPCError, empty_batch

__all__ = [
    "SharedMemorySegment",
    "ShmAllocator",
    "ShmSegment",
    "is_shm_pointer_batch",
    "make_shm_pointer_batch",
    "maybe_write_to_shm",
    "resolve_shm_batch",
]


class ShmAllocator:
    """The table of what is taken in a segment, in its first 64 KiB: first fit, sorted by offset.

    ```python
    >>> from penstock.vgi.shm import ShmAllocator
    >>> memory = memoryview(bytearray(1 << 20))
    >>> ShmAllocator.initialize(memory, len(memory))
    >>> ShmAllocator(memory, len(memory)).allocate(100)
    65536

    ```
    """

    def __init__(self, buf: memoryview, total_size: int) -> None:
        """Use the table in that memory; ValueError where there is none."""
        self._buf, self._size = buf, total_size
        self._table()

    @staticmethod
    def initialize(buf: memoryview, total_size: int) -> None:
        """Write an empty table; ValueError for a size that has no room for data."""
        _store(buf, _core.VgiTable.create(total_size))

    def _table(self) -> "_core.VgiTable":
        """Read the table; ValueError where it is corrupt."""
        return _core.VgiTable.read(bytes(self._buf[: _core.VgiTable.HEADER]), self._size)

    @property
    def max_allocs(self) -> int:
        """So many allocations have room in the table: 4094."""
        return _core.VgiTable.MOST

    @property
    def num_allocs(self) -> int:
        """So many there are."""
        return len(self._table())

    def allocate(self, size: int) -> int | None:
        """Take the first gap of that size, and give its offset in the segment; None where there is none.

        Offsets are multiples of 64, as those of all batches in a segment.
        """
        if size <= 0:
            raise ValueError("an allocation has at least one byte")
        table = self._table()
        offset = table.allocate(size)
        if offset is not None:
            _store(self._buf, table)
        return offset

    def free(self, offset: int) -> None:
        """Give an allocation back; ValueError where there is none at that offset."""
        table = self._table()
        if not table.free(offset):
            raise ValueError(f"there is no allocation at {offset}")
        _store(self._buf, table)

    def reset(self) -> None:
        """Give all back."""
        self.initialize(self._buf, self._size)


def _store(buf: memoryview, table: "_core.VgiTable") -> None:
    header = table.write()
    buf[: len(header)] = header


class SharedMemorySegment:
    """A segment of shared memory that two processes map.

    Beside a Unix socket whose other end is penstock's too, batches go through a sealed file in memory of the same size,
    which has no name and which neither end can truncate; from then on everything here is about that one.

    ```python
    >>> import pyarrow as pa
    >>> from penstock.vgi import SharedMemorySegment
    >>> segment = SharedMemorySegment.create(1 << 20)
    >>> offset, length = segment.allocate_and_write(pa.record_batch({"x": [1, 2, 3]}))
    >>> pa.ipc.open_stream(segment.read_buffer(offset, length)).read_all()["x"].to_pylist()
    [1, 2, 3]
    >>> segment.allocator.num_allocs
    0
    >>> segment.unlink()
    >>> segment.close()

    ```
    """

    def __init__(self, core: "_core.VgiSegment") -> None:
        """Take the core's segment; ``create`` and ``attach`` make it."""
        self.core = core
        """The core's segment."""
        self._buf: memoryview | None = None

    @classmethod
    def create(cls, size: int) -> "SharedMemorySegment":
        """Make a segment of so many bytes, of which 64 KiB are its header; only this user may open it."""
        return cls(_core.VgiSegment.create(size))

    @classmethod
    def attach(cls, name: str, size: int, *, track: bool = True) -> "SharedMemorySegment":  # noqa: ARG003
        """Map a segment that another process has made.

        ``track`` says to Python's resource tracker to unlink it; ours is never tracked, as its maker unlinks it.
        """
        return cls(_core.VgiSegment.attach(name, size))

    @property
    def name(self) -> str:
        """Its name in the system, which the other process attaches by."""
        return self.core.name

    @property
    def size(self) -> int:
        """Its bytes, with the header."""
        return self.core.size

    @property
    def buf(self) -> memoryview:
        """All its bytes, the header included; for looking at it.

        Of a segment that only this process, its parent and its children have they are a mapping, and from then on no
        other process may have it. Another one's maker may truncate it, which would end who looks at a mapping: of an
        attached segment, or one beside another process's connection, they are a copy that can only be read.
        """
        if self._buf is None:
            if not self.core.view():
                return memoryview(self.core.snapshot())
            with os.fdopen(self.core.descriptor(), "r+b") as file:
                self._buf = memoryview(mmap.mmap(file.fileno(), self.size))
        return self._buf

    @property
    def allocator(self) -> "_core.VgiSegment":
        """Its table, with ``allocate``, ``free``, ``num_allocs``, ``max_allocs`` and ``reset``."""
        return self.core

    def allocate_and_write(self, batch: pa.RecordBatch) -> tuple[int, int] | None:
        """Write a batch: where, and how many bytes. None where it has no room."""
        return self.core.write_batch(batch)

    def read_buffer(self, offset: int, length: int) -> pa.Buffer:
        """Give bytes of a region as a view; VgiError where they are not its data.

        The region is given back when the last view of it goes; that is the one way to read it.
        """
        return self.core.read_buffer(offset, length)

    def free(self, offset: int) -> None:
        """Give a region back."""
        self.core.free(offset)

    def reset(self) -> None:
        """Give all regions back."""
        self.core.reset()

    def close(self) -> None:
        """Unmap it once nothing points into it any more."""
        self._buf = None
        self.core.close()

    def unlink(self) -> None:
        """Remove its name, so that the memory goes with the last who maps it."""
        self.core.unlink()


ShmSegment = SharedMemorySegment
"""As ``vgi_rpc`` calls it."""


def is_shm_pointer_batch(batch: pa.RecordBatch, custom_metadata: pa.KeyValueMetadata | None) -> bool:
    """Whether a batch stands for one in shared memory (section 7)."""
    return _core.VgiSegment.is_pointer(batch.num_rows, _pairs(custom_metadata))


def make_shm_pointer_batch(schema: pa.Schema, offset: int, length: int) -> tuple[pa.RecordBatch, pa.KeyValueMetadata]:
    """Give what goes over the pipe in the place of a batch in shared memory."""
    return empty_batch(schema), pa.KeyValueMetadata(_core.VgiSegment.pointer(offset, length))


def maybe_write_to_shm(
    batch: pa.RecordBatch, custom_metadata: pa.KeyValueMetadata | None, shm: ShmSegment | None
) -> tuple[pa.RecordBatch, pa.KeyValueMetadata | None]:
    """Put a batch into shared memory and give its pointer; a batch that has no room, or no row, stays as it is."""
    if shm is None or batch.num_rows == 0 or (pointer := shm.core.share(batch, _pairs(custom_metadata))) is None:
        return batch, custom_metadata
    return _annotated(pointer)


def resolve_shm_batch(
    batch: pa.RecordBatch, custom_metadata: pa.KeyValueMetadata | None, shm: ShmSegment | None
) -> tuple[pa.RecordBatch, pa.KeyValueMetadata | None, Callable[[], None] | None]:
    """Give the batch that a pointer stands for, its metadata, and what frees its region (section 11).

    What is no pointer comes back as it is. IPCError where the pointer is wrong.
    """
    if shm is None or not is_shm_pointer_batch(batch, custom_metadata):
        return batch, custom_metadata, None
    try:
        found = _annotated(shm.core.resolve(batch, _pairs(custom_metadata)))
    except VgiError as error:
        raise IPCError(f"a pointer into shared memory that leads to no batch: {error}") from error
    # The last view of the region gives it back; to release it earlier would pull it from under the batch.
    return *found, None


def _pairs(metadata: pa.KeyValueMetadata | None) -> dict[bytes, bytes] | None:
    return None if metadata is None else dict(metadata)


def _annotated(
    given: tuple[pa.RecordBatch, dict[bytes, bytes] | None],
) -> tuple[pa.RecordBatch, pa.KeyValueMetadata | None]:
    batch, metadata = given
    return batch, None if metadata is None else pa.KeyValueMetadata(metadata)
