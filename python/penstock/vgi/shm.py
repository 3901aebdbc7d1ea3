"""Shared memory alongside a pipe (vgi-rpc, section 11).

Calls use the core's implementation; this module makes its parts available.
"""

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
    """The allocation table in the first 64 KiB of a segment: first fit, sorted by offset.

    ```python
    >>> from penstock.vgi.shm import ShmAllocator
    >>> memory = memoryview(bytearray(1 << 20))
    >>> ShmAllocator.initialize(memory, len(memory))
    >>> ShmAllocator(memory, len(memory)).allocate(100)
    65536

    ```
    """

    def __init__(self, buf: memoryview, total_size: int) -> None:
        """Use the table in this memory.

        Args:
            buf: The memory of the segment.
            total_size: The size of the segment in bytes.

        Raises:
            ValueError: If the memory does not contain a valid table.
        """
        self._buf, self._size = buf, total_size
        self._table()

    @staticmethod
    def initialize(buf: memoryview, total_size: int) -> None:
        """Write an empty table; raise ValueError if the size leaves no room for data."""
        _store(buf, _core.VgiTable.create(total_size))

    def _table(self) -> "_core.VgiTable":
        """Read the table; raise ValueError if it is corrupt."""
        return _core.VgiTable.read(bytes(self._buf[: _core.VgiTable.HEADER]), self._size)

    @property
    def max_allocs(self) -> int:
        """The most allocations that the table can hold: 4094."""
        return _core.VgiTable.MOST

    @property
    def num_allocs(self) -> int:
        """The current number of allocations."""
        return len(self._table())

    def allocate(self, size: int) -> int | None:
        """Allocate the first gap that is large enough.

        Args:
            size: The size in bytes.

        Returns:
            The offset in the segment, a multiple of 64 like those of all batches; None if there is no room.

        Raises:
            ValueError: If the size is not above 0.
        """
        if size <= 0:
            raise ValueError("an allocation must have at least one byte")
        table = self._table()
        offset = table.allocate(size)
        if offset is not None:
            _store(self._buf, table)
        return offset

    def free(self, offset: int) -> None:
        """Free an allocation; raise ValueError if there is none at this offset."""
        table = self._table()
        if not table.free(offset):
            raise ValueError(f"there is no allocation at {offset}")
        _store(self._buf, table)

    def reset(self) -> None:
        """Free all allocations."""
        self.initialize(self._buf, self._size)


def _store(buf: memoryview, table: "_core.VgiTable") -> None:
    header = table.write()
    buf[: len(header)] = header


class SharedMemorySegment:
    """A segment of shared memory for two processes.

    Alongside a Unix socket whose other end is also penstock, batches go through a sealed memory file of the same size
    instead, which has no name and which neither end can truncate. From then on, the methods here refer to that file.

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
        """Wrap the core's segment; use ``create`` or ``attach`` instead."""
        self.core = core
        """The core's segment."""
        self._buf: memoryview | None = None

    @classmethod
    def create(cls, size: int) -> "SharedMemorySegment":
        """Create a segment, which only this user may open.

        Args:
            size: The size in bytes, of which 64 KiB are the header.
        """
        return cls(_core.VgiSegment.create(size))

    @classmethod
    def attach(cls, name: str, size: int, *, track: bool = True) -> "SharedMemorySegment":  # noqa: ARG003
        """Attach a segment that another process created.

        Args:
            name: The name of the segment.
            size: Its size in bytes.
            track: Accepted for compatibility and ignored. Python's resource tracker would unlink the segment, which
                is up to its creator.
        """
        return cls(_core.VgiSegment.attach(name, size))

    @property
    def name(self) -> str:
        """The name of the segment, by which another process attaches it."""
        return self.core.name

    @property
    def size(self) -> int:
        """The size of the segment in bytes, including the header."""
        return self.core.size

    @property
    def buf(self) -> memoryview:
        """All bytes of the segment, including the header, for inspection.

        For a segment that this process created and shares only with its parent and its children, this is a mapping;
        from then on the segment cannot be shared with any other process. For an attached segment, or one alongside a
        connection to another process, it is a read-only copy, because truncation by that process would make access
        to a mapping crash this one.
        """
        if self._buf is None:
            if not self.core.view():
                return memoryview(self.core.snapshot())
            with os.fdopen(self.core.descriptor(), "r+b") as file:
                self._buf = memoryview(mmap.mmap(file.fileno(), self.size))
        return self._buf

    @property
    def allocator(self) -> "_core.VgiSegment":
        """The allocation table, with ``allocate``, ``free``, ``num_allocs``, ``max_allocs`` and ``reset``."""
        return self.core

    def allocate_and_write(self, batch: pa.RecordBatch) -> tuple[int, int] | None:
        """Write a batch, and return its offset and its length in bytes; None if there is no room."""
        return self.core.write_batch(batch)

    def read_buffer(self, offset: int, length: int) -> pa.Buffer:
        """Return the bytes of a region, which reading frees.

        They are a view if ``buf`` is a mapping, and the region is freed once the last view is dropped. Otherwise they
        are a copy, and the region is freed immediately.

        Args:
            offset: The offset of the region.
            length: Its length in bytes.

        Raises:
            VgiError: If these bytes are not the data of a region.
        """
        return self.core.read_buffer(offset, length)

    def free(self, offset: int) -> None:
        """Free the region at this offset; raise ValueError if there is none."""
        self.core.free(offset)

    def reset(self) -> None:
        """Free all regions."""
        self.core.reset()

    def close(self) -> None:
        """Unmap the segment, once nothing refers to its memory any more."""
        self._buf = None
        self.core.close()

    def unlink(self) -> None:
        """Remove the name of the segment; its memory is released with the last mapping."""
        self.core.unlink()


ShmSegment = SharedMemorySegment
"""The name of ``SharedMemorySegment`` in ``vgi_rpc``."""


def is_shm_pointer_batch(batch: pa.RecordBatch, custom_metadata: pa.KeyValueMetadata | None) -> bool:
    """Return whether a batch is a pointer to one in shared memory (vgi-rpc, section 7)."""
    return _core.VgiSegment.is_pointer(batch.num_rows, _pairs(custom_metadata))


def make_shm_pointer_batch(schema: pa.Schema, offset: int, length: int) -> tuple[pa.RecordBatch, pa.KeyValueMetadata]:
    """Return the pointer to send through the pipe in place of a batch in shared memory, and its metadata."""
    return empty_batch(schema), pa.KeyValueMetadata(_core.VgiSegment.pointer(offset, length))


def maybe_write_to_shm(
    batch: pa.RecordBatch, custom_metadata: pa.KeyValueMetadata | None, shm: ShmSegment | None
) -> tuple[pa.RecordBatch, pa.KeyValueMetadata | None]:
    """Write a batch into shared memory and return its pointer.

    A batch without rows, or for which there is no room or no segment, is returned unchanged.
    """
    if shm is None or batch.num_rows == 0 or (pointer := shm.core.share(batch, _pairs(custom_metadata))) is None:
        return batch, custom_metadata
    return _annotated(pointer)


def resolve_shm_batch(
    batch: pa.RecordBatch, custom_metadata: pa.KeyValueMetadata | None, shm: ShmSegment | None
) -> tuple[pa.RecordBatch, pa.KeyValueMetadata | None, Callable[[], None] | None]:
    """Return the batch behind a pointer, and its metadata (vgi-rpc, section 11).

    Any other batch is returned unchanged. The third value, a function to free the region in ``vgi_rpc``, is always
    None: the region is freed by itself, at the latest once the last view of it is dropped.

    Raises:
        IPCError: If the pointer does not lead to a batch.
    """
    if shm is None or not is_shm_pointer_batch(batch, custom_metadata):
        return batch, custom_metadata, None
    try:
        found = _annotated(shm.core.resolve(batch, _pairs(custom_metadata)))
    except VgiError as error:
        raise IPCError(f"a pointer into shared memory does not lead to a batch: {error}") from error
    # The last view frees the region; freeing it earlier would invalidate the batch.
    return *found, None


def _pairs(metadata: pa.KeyValueMetadata | None) -> dict[bytes, bytes] | None:
    return None if metadata is None else dict(metadata)


def _annotated(
    given: tuple[pa.RecordBatch, dict[bytes, bytes] | None],
) -> tuple[pa.RecordBatch, pa.KeyValueMetadata | None]:
    batch, metadata = given
    return batch, None if metadata is None else pa.KeyValueMetadata(metadata)
