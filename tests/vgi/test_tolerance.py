"""What a request may be, and what it may not, on a pipe and over HTTP; what else the package does and ours keeps."""

import io
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pyarrow as pa
import pytest
from worker import Color, Service, ServiceImpl

from penstock.vgi import (
    AnnotatedBatch,
    PipeTransport,
    RpcConnection,
    RpcServer,
    SharedMemorySegment,
    ShmPipeTransport,
    http_connect,
    make_pipe_pair,
    make_sync_client,
)
from penstock.vgi.utils import serialize_record_batch

ARROW = "application/vnd.apache.arrow.stream"
Answer = tuple[pa.RecordBatch, dict[bytes, bytes]]
REQUIRED = pa.field("a", pa.float64(), nullable=False)


def asked(method: str, columns: list[tuple[Any, Any]], **metadata: bytes) -> tuple[str, bytes]:
    """A request with a row; a batch more where `batches` says so."""
    schema = pa.schema([field for field, _ in columns])
    batch = pa.RecordBatch.from_arrays(
        [pa.array([value], schema.field(at).type) for at, (_, value) in enumerate(columns)], schema=schema
    )
    said = {b"vgi_rpc.method": method.encode(), b"vgi_rpc.request_version": b"1"}
    said |= {f"vgi_rpc.{key}".encode(): value for key, value in metadata.items()}
    sink = io.BytesIO()
    serialize_record_batch(sink, batch, pa.KeyValueMetadata({key: value for key, value in said.items() if value}))
    return method, sink.getvalue()


def twice(method: str, batch: pa.RecordBatch) -> tuple[str, bytes]:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        said = {b"vgi_rpc.method": method.encode(), b"vgi_rpc.request_version": b"1"}
        stream.write_batch(batch, custom_metadata=pa.KeyValueMetadata(said))
        stream.write_batch(batch)
    return method, sink.getvalue()


@pytest.fixture(params=["pipe", "spec", "0.10"])
def ask(request: pytest.FixtureRequest) -> Iterator[Callable[[tuple[str, bytes]], Answer]]:
    """Sends bytes to a server, and gives its answer; the same connection carries all of them."""

    def read(source: Any) -> Answer:
        answer = pa.ipc.open_stream(source)
        found: Answer | None = None
        # Messages stand before the result.
        while found is None or (b"vgi_rpc.log_level" in found[1] and found[1][b"vgi_rpc.log_level"] != b"EXCEPTION"):
            batch, metadata = answer.read_next_batch_with_custom_metadata()
            found = (batch, dict(metadata or {}))
        with pytest.raises(StopIteration):
            answer.read_next_batch()
        return found

    if request.param != "pipe":
        client = make_sync_client(RpcServer(Service, ServiceImpl(), dialect=request.param))

        def post(sent: tuple[str, bytes]) -> Answer:
            url = f"{client.prefix}/{sent[0]}"
            return read(client.post(url, content=sent[1], headers={"Content-Type": ARROW}).content)

        yield post
        return
    ours, theirs = make_pipe_pair()
    thread = threading.Thread(target=RpcServer(Service, ServiceImpl()).serve, args=(theirs,))
    thread.start()

    def send(sent: tuple[str, bytes]) -> Answer:
        ours.writer.write(sent[1])
        return read(ours.reader)

    yield send
    ours.close()
    thread.join()


FLOAT = pa.float64()


@pytest.mark.parametrize(
    ("sent", "result"),
    [
        (asked("add", [(("b", FLOAT), 1.0), (("a", FLOAT), 5.0)]), 6.0),
        (asked("add", [(("a", pa.int64()), 5), (("b", pa.int64()), 1)]), 6.0),
        (asked("add", [(REQUIRED, 5.0), (("b", FLOAT), 1.0)]), 6.0),
        (asked("add", [(("a", FLOAT), 5.0)]), 7.0),
        (asked("color", [(("color", pa.utf8()), "BLUE")]), "BLUE"),
        (asked("small", []), None),
        (twice("add", pa.RecordBatch.from_pydict({"a": [5.0]})), 7.0),
    ],
    ids=["reordered", "int64", "nullable", "default", "enum", "null-default", "more-batches"],
)
def test_a_request_may_differ_a_little(
    ask: Callable[[tuple[str, bytes]], Answer], sent: tuple[str, bytes], result: Any
) -> None:
    for _ in range(2):
        batch, _ = ask(sent)
        assert batch.to_pydict() == {"result": [result]}


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        (asked("add", [(("b", FLOAT), 1.0)]), "TypeError"),
        (asked("add", [(("a", FLOAT), 1.0), (("c", FLOAT), 1.0)]), "TypeError"),
        (asked("add", [(("a", pa.utf8()), "one")]), "TypeError"),
        (asked("add", [(("a", FLOAT), None)]), "TypeError"),
        (asked("add", [(("a", FLOAT), 1.0)], request_version=b""), "VersionError"),
        (asked("color", [(("color", pa.utf8()), "GREEN")]), "ValueError"),
        (asked("point", [(("point", pa.binary()), b"no dataclass")]), "IPCError"),
    ],
    ids=["missing", "unknown", "type", "null", "version", "enum", "dataclass"],
)
def test_another_one_is_an_error_and_the_next_call_is_served(
    ask: Callable[[tuple[str, bytes]], Answer], sent: tuple[str, bytes], kind: str
) -> None:
    batch, metadata = ask(sent)
    said = json.loads(metadata[b"vgi_rpc.log_extra"])
    assert (batch.num_rows, metadata[b"vgi_rpc.log_level"], said["exception_type"]) == (0, b"EXCEPTION", kind)
    assert metadata[b"vgi_rpc.log_message"].startswith(f"{kind}: ".encode())
    assert ask(asked("add", [(("a", FLOAT), 1.0)]))[0].to_pydict() == {"result": [3.0]}


def test_closing_a_stream_over_http_does_nothing() -> None:
    with http_connect(Service, client=make_sync_client(RpcServer(Service, ServiceImpl()))) as service:
        with service.scale(factor=2.0) as stream:
            stream.close()
        answer = stream.exchange(input_batch=AnnotatedBatch.from_pydict({"value": [1.0]}))
        assert answer.batch.to_pydict() == {"value": [2.0]}
        assert service.color(color=Color.RED) is Color.RED


class Measure(Protocol):
    def size(self, data: bytes) -> int: ...


class MeasureImpl:
    def size(self, data: bytes) -> int:
        return len(data)


class Counting(io.RawIOBase):
    """A pipe's end that counts what goes through."""

    def __init__(self, end: Any) -> None:
        self.end, self.bytes = end, 0

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        number: int = self.end.fileno()
        return number

    def write(self, data: Any) -> int:
        written: int = self.end.write(data)
        self.bytes += written
        return written


def test_requests_never_go_through_shared_memory() -> None:
    ours, theirs = make_pipe_pair()
    thread = threading.Thread(target=RpcServer(Measure, MeasureImpl()).serve, args=(theirs,))
    thread.start()
    counting = Counting(ours.writer)
    segment = SharedMemorySegment.create(8 << 20)
    try:
        pipe = ShmPipeTransport(PipeTransport(ours.reader, counting), segment)
        with RpcConnection(Measure, pipe) as measure:
            # All of it goes through the pipe, although there is room.
            assert measure.size(data=bytes(1 << 20)) == 1 << 20
            assert counting.bytes > 1 << 20
    finally:
        ours.close()
        thread.join()
        segment.unlink()
        segment.close()
