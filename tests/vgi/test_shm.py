"""Shared memory beside a pipe: batches are views of it, and regions go back when the last view does."""

import gc
import threading
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pytest

from penstock.errors import VgiError
from penstock.vgi import (
    AnnotatedBatch,
    CallContext,
    ExchangeState,
    OutputCollector,
    RpcConnection,
    RpcError,
    RpcServer,
    SharedMemorySegment,
    ShmPipeTransport,
    Stream,
    make_pipe_pair,
)
from penstock.vgi.rpc import make_unix_pair
from penstock.vgi.shm import ShmAllocator, maybe_write_to_shm, resolve_shm_batch
from penstock.vgi.utils import IPCError

VALUES = pa.schema([("value", pa.float64())])
NAMES = pa.schema([("name", pa.dictionary(pa.int16(), pa.utf8()))])
LARGE = pa.record_batch({"value": [float(each) for each in range(100_000)]}, schema=VALUES)


def lies_in(batch: pa.RecordBatch, name: str) -> bool:
    """Whether a batch's values lie in a mapping of that segment: then nobody has copied them."""
    buffer = batch.column(0).buffers()[1]
    for line in Path("/proc/self/maps").read_text().splitlines():
        if name in line:
            start, end = (int(each, 16) for each in line.split()[0].split("-"))
            if start <= buffer.address and buffer.address + buffer.size <= end:
                return True
    return False


@dataclass
class Echo(ExchangeState):
    def exchange(self, input: AnnotatedBatch, out: OutputCollector, ctx: CallContext) -> None:  # noqa: A002, ARG002
        SEEN.append((input.batch.nbytes, lies_in(input.batch, NAME[-1]), pa.total_allocated_bytes()))
        out.emit(input.batch)


SEEN: list[tuple[int, bool, int]] = []
NAME: list[str] = []


class Service(Protocol):
    def echo(self) -> Stream[Echo]: ...
    def names(self) -> Stream[Echo]: ...
    def zeros(self, n: int) -> bytes: ...


class ServiceImpl:
    def echo(self) -> Stream[Echo]:
        return Stream(output_schema=VALUES, state=Echo(), input_schema=VALUES)

    def names(self) -> Stream[Echo]:
        return Stream(output_schema=NAMES, state=Echo(), input_schema=NAMES)

    def zeros(self, n: int) -> bytes:
        return bytes(n)


@pytest.fixture
def segment() -> Iterator[SharedMemorySegment]:
    made = SharedMemorySegment.create(8 << 20)
    NAME.append(made.name)
    SEEN.clear()
    yield made
    made.unlink()
    made.close()


@pytest.fixture(params=[make_pipe_pair, make_unix_pair], ids=["pipe", "unix"])
def service(request: pytest.FixtureRequest, segment: SharedMemorySegment) -> Iterator[Any]:
    ours, theirs = request.param()
    thread = threading.Thread(target=RpcServer(Service, ServiceImpl()).serve, args=(theirs,))
    thread.start()
    try:
        with RpcConnection(Service, ShmPipeTransport(ours, segment)) as proxy:
            yield proxy
    finally:
        ours.close()
        thread.join()


@pytest.mark.parametrize("service", [make_unix_pair], indirect=True)
def test_neither_side_copies_a_batch_out_of_shared_memory(service: Any, segment: SharedMemorySegment) -> None:
    # With the first answer the client knows that the server has the segment.
    assert service.zeros(n=1) == bytes(1)
    before = pa.total_allocated_bytes()
    with service.echo() as stream:
        answer = stream.exchange(AnnotatedBatch(LARGE))
        assert answer.batch.equals(LARGE)
        assert answer.custom_metadata[b"vgi_rpc.shm_source"] == segment.name.encode()
        size, shared, allocated = SEEN[0]
        assert (size, shared) == (LARGE.nbytes, True)
        assert lies_in(answer.batch, segment.name)
        # Of its 800,000 bytes pyarrow has none in memory of its own, at neither end; Rust has its own test.
        assert allocated - before < 100_000
        assert pa.total_allocated_bytes() - before < 100_000


def test_a_unary_result_is_copied_into_its_python_object_alone(service: Any, segment: SharedMemorySegment) -> None:
    size = 4 << 20
    assert service.zeros(n=1) == bytes(1)
    tracemalloc.start()
    try:
        allocated, (before, _) = pa.total_allocated_bytes(), tracemalloc.get_traced_memory()
        got = service.zeros(n=size)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(got) == size
    # What the caller has, and at most what the method made: both ends are in this process.
    assert size <= peak - before < 2 * size + 100_000
    assert pa.total_allocated_bytes() - allocated < 100_000
    service.zeros(n=1)
    assert segment.allocator.num_allocs == 0


@pytest.mark.parametrize("service", [make_pipe_pair], indirect=True)
def test_a_pipe_does_not_say_who_is_there_so_batches_are_copied(service: Any, segment: SharedMemorySegment) -> None:
    with service.echo() as stream:
        answer = stream.exchange(AnnotatedBatch(LARGE))
        assert answer.batch.equals(LARGE)
        assert answer.custom_metadata[b"vgi_rpc.shm_source"] == segment.name.encode()
        assert [(size, shared) for size, shared, _ in SEEN] == [(LARGE.nbytes, False)]
        assert not lies_in(answer.batch, segment.name)


@pytest.mark.parametrize("service", [make_unix_pair], indirect=True)
def test_a_region_goes_back_when_the_last_view_does(service: Any, segment: SharedMemorySegment) -> None:
    with service.echo() as stream:
        kept = stream.exchange(AnnotatedBatch(LARGE)).batch.slice(5, 3)
        for _ in range(20):
            assert stream.exchange(AnnotatedBatch(LARGE)).batch.num_rows == LARGE.num_rows
        # Whatever was written meanwhile, what is held was not touched.
        assert kept.column(0).to_pylist() == [5.0, 6.0, 7.0]
        assert segment.allocator.num_allocs >= 1
        del kept
        gc.collect()
    # The worker's last view may go after its last answer: it gives the region back when it has its next turn.
    service.zeros(n=1)
    assert segment.allocator.num_allocs == 0


def test_small_batches_and_those_without_room_go_through_the_pipe(service: Any) -> None:
    small, huge = LARGE.slice(0, 10), pa.record_batch({"value": pa.array(range(1_100_000), pa.float64())})
    with service.echo() as stream:
        for batch in (small, huge):
            answer = stream.exchange(AnnotatedBatch(batch))
            assert answer.batch.equals(batch)
            assert answer.custom_metadata is None
    assert [shared for _, shared, _ in SEEN] == [False, False]


def test_dictionaries_and_unary_results_go_through_shared_memory(service: Any, segment: SharedMemorySegment) -> None:
    names = pa.array(["red", None, "blue"] * 50_000).dictionary_encode().cast(NAMES.field(0).type)
    with service.names() as stream:
        answer = stream.exchange(AnnotatedBatch(pa.record_batch([names], schema=NAMES)))
        assert answer.batch.column(0).to_pylist() == names.to_pylist()
        assert answer.custom_metadata[b"vgi_rpc.shm_source"] == segment.name.encode()
    assert service.zeros(n=1 << 20) == bytes(1 << 20)
    assert service.zeros(n=3) == bytes(3)


def test_a_segments_allocator_is_that_of_the_specification(segment: SharedMemorySegment) -> None:
    place = segment.allocate_and_write(LARGE)
    assert place is not None
    assert place[0] == 65_536
    assert ShmAllocator(segment.buf, segment.size).num_allocs == segment.allocator.num_allocs == 1
    pointer, metadata = maybe_write_to_shm(LARGE, None, segment)
    assert pointer.num_rows == 0
    found, said, _ = resolve_shm_batch(pointer, metadata, segment)
    assert found.equals(LARGE)
    assert said is not None
    assert said[b"vgi_rpc.shm_source"] == segment.name.encode()
    segment.free(place[0])
    del found
    assert segment.allocator.num_allocs == 0
    # It is corrupt from here on: that is an error, and no read out of bounds.
    segment.buf[16:20] = b"\xff\xff\xff\xff"
    with pytest.raises(VgiError):
        segment.allocate_and_write(LARGE)
    segment.buf[16:20] = bytes(4)


def test_an_allocator_works_on_a_table_in_any_memory() -> None:
    memory = memoryview(bytearray(65_536 + 640))
    with pytest.raises(ValueError, match="VGIS"):
        ShmAllocator(memory, len(memory))
    with pytest.raises(ValueError, match="65536"):
        ShmAllocator.initialize(memory, 65_536)
    ShmAllocator.initialize(memory, len(memory))
    allocator = ShmAllocator(memory, len(memory))
    places = [65_536, 65_664, 65_792, 65_920, 66_048, None]
    assert [allocator.allocate(100) for _ in places] == places
    allocator.free(65_664)
    with pytest.raises(ValueError, match="no allocation at 65664"):
        allocator.free(65_664)
    assert (allocator.num_allocs, allocator.allocate(128), allocator.max_allocs) == (4, 65_664, 4_094)
    memory[16:20] = b"\xff\xff\xff\xff"
    with pytest.raises(ValueError, match="4294967295 allocations"):
        allocator.allocate(1)
    allocator.reset()
    assert allocator.num_allocs == 0


def test_a_pointer_that_leads_to_no_batch_is_an_error(segment: SharedMemorySegment) -> None:
    for offset, length in [(b"65536", b"8"), (b"-1", b"8"), (b"65536", b"all")]:
        metadata = pa.KeyValueMetadata({b"vgi_rpc.shm_offset": offset, b"vgi_rpc.shm_length": length})
        with pytest.raises(IPCError):
            resolve_shm_batch(LARGE.slice(0, 0), metadata, segment)
    assert resolve_shm_batch(LARGE, None, segment) == (LARGE, None, None)


def test_a_pointer_out_of_range_ends_its_stream_alone(segment: SharedMemorySegment) -> None:
    ours, theirs = make_pipe_pair()
    thread = threading.Thread(target=RpcServer(Service, ServiceImpl()).serve, args=(theirs,))
    thread.start()
    try:
        with RpcConnection(Service, ShmPipeTransport(ours, segment)) as proxy:
            wrong = pa.KeyValueMetadata({b"vgi_rpc.shm_offset": b"65536", b"vgi_rpc.shm_length": b"999999999"})
            with proxy.echo() as stream, pytest.raises(RpcError) as raised:
                stream.exchange(AnnotatedBatch(LARGE.slice(0, 0), wrong))
            assert raised.value.error_type == "ProtocolError"
            assert proxy.zeros(n=2) == bytes(2)
    finally:
        ours.close()
        thread.join()
