"""What the contract says of calls, and that nothing that goes wrong in one spoils the next."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pytest
from worker import VALUES, About, Color, Point, Service, ServiceImpl

from penstock.tls import write_certificates
from penstock.vgi import (
    AnnotatedBatch,
    CallContext,
    ExchangeState,
    Level,
    Message,
    OutputCollector,
    PipeTransport,
    ProducerState,
    RpcError,
    RpcServer,
    Stream,
    WorkerPool,
    connect,
    introspect,
    make_pipe_pair,
    rpc_methods,
    serve_pipe,
)
from penstock.vgi.introspect import build_describe_batch, compute_protocol_hash
from penstock.vgi.metadata import PROTOCOL_HASH_KEY
from penstock.vgi.rpc import serve_unix_pipe, tcp_connect, unix_connect
from penstock.vgi.utils import serialize_record_batch

WORKER = [sys.executable, str(Path(__file__).with_name("worker.py"))]


@pytest.fixture(params=[serve_pipe, serve_unix_pipe], ids=["pipe", "unix"])
def service(request: pytest.FixtureRequest) -> Iterator[Any]:
    with request.param(Service, ServiceImpl()) as proxy:
        yield proxy
        # Whatever the test did, the connection serves the next call.
        assert proxy.add(a=1.0) == 3.0


def values(*numbers: float) -> AnnotatedBatch:
    return AnnotatedBatch.from_pydict({"value": list(numbers)})


def test_an_exceptions_class_stands_before_its_text(service: Any) -> None:
    with pytest.raises(RpcError) as raised:
        service.boom(text="boom")
    assert (raised.value.error_type, raised.value.error_message) == ("ValueError", "ValueError: boom")
    assert "in boom" in raised.value.remote_traceback
    assert len(raised.value.request_id) == 16


def test_an_int_is_taken_for_a_float(service: Any) -> None:
    assert service.add(a=1, b=2) == 3.0


@pytest.mark.parametrize("keywords", [{}, {"a": 1.0, "c": 1.0}, {"a": None}, {"a": "text"}])
def test_wrong_arguments_are_a_type_error_of_the_caller(service: Any, keywords: dict[str, object]) -> None:
    with pytest.raises(TypeError, match=r"add\(\)|'a'|\"a\"|a"):
        service.add(**keywords)


def test_arguments_go_by_name(service: Any) -> None:
    with pytest.raises(TypeError):
        service.add(1.0, 2.0)


def test_a_method_that_is_not_there_is_an_attribute_error(service: Any) -> None:
    with pytest.raises(AttributeError, match="no RPC method 'nope'"):
        service.nope()


def test_dataclasses_enums_and_nulls_come_back(service: Any) -> None:
    assert service.point(point=Point(1.0)) == Point(1.0)
    assert service.perhaps(point=None) is None
    assert service.perhaps(point=Point(2.0, 3.0)) == Point(2.0, 3.0)
    assert service.color(color=Color.BLUE) is Color.BLUE
    # Declared non-null, and yet it carries a null.
    assert service.small() is None
    assert service.small(n=5) == 5


@pytest.mark.parametrize(("method", "text"), [("nothing", "not optional"), ("wrong", "result")])
def test_a_result_that_is_not_what_is_declared_is_an_error(service: Any, method: str, text: str) -> None:
    with pytest.raises(RpcError, match=text) as raised:
        getattr(service, method)()
    assert raised.value.error_type == "TypeError"


def test_a_producer_is_read_to_its_end(service: Any) -> None:
    batches = list(service.count(n=2))
    assert [each.batch["value"].to_pylist() for each in batches] == [[2.0], [1.0]]
    assert batches[0].custom_metadata[b"step"] == b"2"


def test_a_header_comes_before_the_batches(service: Any) -> None:
    stream = service.count_with(n=1)
    assert stream.header == About(1)
    assert stream.typed_header(About).rows == 1
    with pytest.raises(TypeError, match="expected Point"):
        stream.typed_header(Point)
    assert len(list(stream)) == 1


@pytest.mark.parametrize("method", ["count", "count_with"])
def test_an_error_of_a_streams_beginning_is_raised_at_its_first_use(service: Any, method: str) -> None:
    stream = getattr(service, method)(n=-1)
    with pytest.raises(RpcError, match="n is negative"):
        next(iter(stream))


@pytest.mark.parametrize("method", ["headless", "no_stream"])
def test_a_streaming_method_that_returns_something_else_is_an_error(service: Any, method: str) -> None:
    with pytest.raises(RpcError, match=r"header|Stream") as raised:
        getattr(service, method)().tick()
    assert raised.value.error_type == "TypeError"


def test_input_is_cast_where_that_is_safe_and_refused_elsewhere(service: Any) -> None:
    with service.scale(factor=2.0) as stream:
        assert stream.exchange(AnnotatedBatch.from_pydict({"value": [1, 2]})).batch.to_pydict() == {"value": [2.0, 4.0]}
    with service.scale(factor=2.0) as stream, pytest.raises(RpcError, match="Input schema mismatch") as raised:
        stream.exchange(AnnotatedBatch.from_pydict({"other": ["a"]}))
    assert raised.value.error_type == "TypeError"


def test_an_exchange_that_answers_nothing_is_an_error(service: Any) -> None:
    with service.silent() as stream, pytest.raises(RpcError, match="no data batch"):
        stream.exchange(values(1.0))


def test_an_error_in_a_step_ends_the_stream_alone(service: Any) -> None:
    with service.scale(factor=2.0) as stream:
        assert stream.exchange(values(1.0)).batch.num_rows == 1
        with pytest.raises(RpcError, match="13 is bad luck"):
            stream.exchange(values(13.0))
        with pytest.raises(RpcError, match="closed"):
            stream.exchange(values(1.0))


def test_a_stream_that_is_left_open_ends_with_the_next_call(service: Any) -> None:
    left = service.count(n=1_000)
    assert left.tick().batch.num_rows == 1
    assert service.add(a=2.0) == 4.0
    with pytest.raises(RpcError, match="closed"):
        left.tick()
    # One that was never read at all.
    service.scale(factor=1.0)


def test_logs_reach_the_caller_with_what_belongs_to_them() -> None:
    logs: list[Message] = []
    with serve_pipe(Service, ServiceImpl(), on_log=logs.append) as service:
        service.color(color=Color.RED)
        list(service.count(n=1))
    assert [(each.level.value, each.message) for each in logs] == [("DEBUG", "RED"), ("INFO", "1 left")]
    assert logs[1].extra is not None
    assert logs[1].extra["left"] == "1"
    assert len(str(logs[1].extra["server_id"])) == 12


def request(schema: pa.Schema, columns: dict[str, object], metadata: dict[bytes, bytes] | None) -> bytes:
    sink = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_pydict({name: [value] for name, value in columns.items()}, schema=schema)
    serialize_record_batch(sink, batch, None if metadata is None else pa.KeyValueMetadata(metadata))
    return bytes(sink.getvalue())


FLOATS = pa.schema([("a", pa.float64())])
GOOD = {b"vgi_rpc.method": b"add", b"vgi_rpc.request_version": b"1"}
COLOR = GOOD | {b"vgi_rpc.method": b"color"}
POINT = GOOD | {b"vgi_rpc.method": b"point"}


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (request(FLOATS, {"a": 1.0}, None), "ProtocolError|RpcError|VersionError"),
        (request(FLOATS, {"a": 1.0}, {b"vgi_rpc.method": b"add"}), "VersionError"),
        (request(FLOATS, {"a": 1.0}, GOOD | {b"vgi_rpc.request_version": b"9"}), "VersionError"),
        (request(FLOATS, {"a": 1.0}, GOOD | {b"vgi_rpc.method": b"nope"}), "AttributeError"),
        (request(FLOATS, {"a": None}, GOOD), "TypeError"),
        (request(pa.schema([("b", pa.float64())]), {"b": 1.0}, GOOD), "TypeError"),
        (request(pa.schema([*FLOATS, ("z", pa.int8())]), {"a": 1.0, "z": 1}, GOOD), "TypeError"),
        (request(pa.schema([("color", pa.utf8())]), {"color": "GREEN"}, COLOR), "ValueError"),
        (request(pa.schema([("point", pa.binary())]), {"point": b"no dataclass"}, POINT), "IPCError"),
    ],
    ids=["no-metadata", "no-version", "version-9", "method", "null", "missing", "unknown", "enum", "dataclass"],
)
def test_a_request_that_is_wrong_is_answered_and_the_next_one_served(data: bytes, kind: str) -> None:
    ours, theirs = make_pipe_pair()
    thread = threading.Thread(target=RpcServer(Service, ServiceImpl()).serve, args=(theirs,))
    thread.start()
    try:
        for sent in (data, request(FLOATS, {"a": 1.0}, GOOD)):
            ours.writer.write(sent)
            answer = pa.ipc.open_stream(ours.reader)
            batch, metadata = answer.read_next_batch_with_custom_metadata()
            with pytest.raises(StopIteration):
                answer.read_next_batch()
            if sent is data:
                said = json.loads(metadata[b"vgi_rpc.log_extra"])
                assert batch.num_rows == 0
                assert metadata[b"vgi_rpc.log_level"] == b"EXCEPTION"
                assert said["exception_type"] in kind.split("|"), said
        # Omitted parameters have their defaults.
        assert batch.to_pydict() == {"result": [3.0]}
    finally:
        ours.close()
        thread.join()


@pytest.mark.parametrize(("dialect", "version"), [("spec", "2"), ("0.10", "4")])
def test_a_server_tells_what_it_has_in_its_dialect(dialect: str, version: str) -> None:
    ours, theirs = make_pipe_pair()
    server = RpcServer(Service, ServiceImpl(), enable_describe=True, dialect=dialect)
    thread = threading.Thread(target=server.serve, args=(theirs,))
    thread.start()
    try:
        about = introspect(ours)
    finally:
        ours.close()
        thread.join()
    assert about.describe_version == version
    assert set(about.methods) == set(rpc_methods(Service))
    assert about.methods["add"].params_schema == pa.schema(
        [pa.field("a", pa.float64(), nullable=False), pa.field("b", pa.float64(), nullable=False)]
    )
    if dialect == "spec":
        assert about.methods["add"].doc == "Add two numbers."
        assert about.methods["add"].param_defaults == {"b": 2.0}
    else:
        assert about.protocol_hash == server.protocol_hash
        assert about.methods["scale"].is_exchange is True
        batch, metadata = build_describe_batch("Service", rpc_methods(Service), "id")
        assert compute_protocol_hash("Service", batch) == server.protocol_hash == metadata[PROTOCOL_HASH_KEY].decode()
        assert compute_protocol_hash("Other", batch) != server.protocol_hash
        with pytest.raises(ValueError, match="has_return"):
            compute_protocol_hash("Service", batch.drop_columns(["has_return"]))


def test_a_worker_that_dies_is_an_error_and_does_not_return_to_its_pool() -> None:
    with WorkerPool() as pool:
        with pool.connect(Service, WORKER) as service:
            first = service.pid()
        with pool.connect(Service, WORKER) as service:
            assert service.pid() == first
            with pytest.raises(RpcError) as raised:
                service.die()
            assert raised.value.error_type == "TransportError"
        with pool.connect(Service, WORKER) as service:
            assert service.pid() != first
        metrics = pool.metrics
    assert (metrics.spawns, metrics.reuses, metrics.discards, metrics.idle) == (2, 1, 1, 1)


_FORKING = """
import os, sys
from worker import Service
from penstock.vgi import WorkerPool
pool = WorkerPool()
worker = [sys.executable, "worker.py"]
with pool.connect(Service, worker) as service:
    first = service.pid()
child = os.fork()
if child == 0:
    with pool.connect(Service, worker) as service:
        own = service.pid()
    metrics = pool.metrics
    pool.close()
    os._exit(0 if own != first and (metrics.spawns, metrics.idle) == (1, 1) else 1)
assert os.waitpid(child, 0)[1] == 0
with pool.connect(Service, worker) as service:
    assert service.pid() == first
pool.close()
"""


def test_a_pool_that_was_forked_starts_workers_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FORKING], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_what_a_method_prints_is_not_the_protocols() -> None:
    with connect(Service, WORKER) as service:
        with pytest.raises(RpcError, match="boom"):
            service.boom(text="boom")
        assert service.add(a=1.0) == 3.0


def test_a_worker_serves_on_a_socket_and_logs_its_calls(tmp_path: Path) -> None:
    path, log = tmp_path / "socket", tmp_path / "access.jsonl"
    command = [*WORKER, "--unix", str(path), "--access-log", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        try:
            assert worker.stdout is not None
            assert worker.stdout.readline() == f"UNIX:{path}\n"
            with unix_connect(Service, str(path)) as one, unix_connect(Service, str(path)) as other:
                assert one.add(a=1.0) + other.add(a=2.0) == 7.0
                with pytest.raises(RpcError):
                    one.boom(text="boom")
                # A call is in the log before the next one of its connection is answered.
                assert one.add(a=1.0) == other.add(a=1.0)
        finally:
            worker.terminate()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    seen = [(each["method"], each["status"]) for each in lines]
    assert seen.count(("add", "ok")) >= 2
    assert [line["error_type"] for line in lines if line["method"] == "boom"] == ["ValueError"]


def test_tcp_carries_the_same_over_tls(tmp_path: Path) -> None:
    pinned = write_certificates(tmp_path)
    serve = (
        "import sys; from worker import *; from penstock.vgi import RpcServer; from penstock.vgi.rpc import serve_tcp; "
        "serve_tcp(RpcServer(Service, ServiceImpl()), cert=sys.argv[1], key=sys.argv[2], client_ca=sys.argv[3])"
    )
    files = [str(tmp_path / name) for name in ("cert.pem", "key.pem", "ca.pem")]
    command = [sys.executable, "-c", serve, *files]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent) as process:
        try:
            assert process.stdout is not None
            where, _, fingerprint = process.stdout.readline().strip().partition(" fingerprint ")
            assert fingerprint == pinned
            host, port = where.removeprefix("TCP:").split(":")
            ours = {"cert": files[0], "key": files[1]}
            with tcp_connect(Service, host, int(port), fingerprint=fingerprint, **ours) as service:
                assert service.add(a=1.0) == 3.0
                with service.scale(factor=2.0) as stream:
                    many = values(*[1.5] * 200_000)
                    assert stream.exchange(many).batch["value"][199_999].as_py() == 3.0
            for wrong in ({"ca": files[2]}, {"fingerprint": "0" * 64, **ours}):
                with tcp_connect(Service, host, int(port), **wrong) as service, pytest.raises(RpcError) as raised:
                    service.add(a=1.0)
                assert raised.value.error_type == "TransportError"
        finally:
            process.terminate()


def test_files_are_as_good_as_descriptors(tmp_path: Path) -> None:
    (tmp_path / "requests").write_bytes(request(FLOATS, {"a": 1.0}, GOOD) * 2)
    with (tmp_path / "requests").open("rb") as reader, (tmp_path / "answers").open("wb") as writer:
        RpcServer(Service, ServiceImpl()).serve(PipeTransport(reader, writer))
    with (tmp_path / "answers").open("rb") as answers:
        for _ in range(2):
            assert pa.ipc.open_stream(answers).read_all().to_pydict() == {"result": [3.0]}


def finish(stream: Any) -> None:
    assert len(list(stream)) == 2


def cancel(stream: Any) -> None:
    stream.cancel()


def close(stream: Any) -> None:
    with stream:
        stream.tick()


@pytest.mark.parametrize("end", [finish, cancel, close])
def test_a_header_can_be_read_after_the_end_of_its_stream(service: Any, end: Callable[[Any], None]) -> None:
    stream = service.count_with(n=2)
    end(stream)
    assert stream.header == About(2)
    assert stream.typed_header(About).rows == 2
    with pytest.raises(RpcError, match="closed"):
        stream.tick()


def test_a_stream_that_was_not_opened_has_no_header_after_its_error(service: Any) -> None:
    stream = service.count_with(n=-1)
    with pytest.raises(RpcError, match="n is negative"):
        stream.tick()
    with pytest.raises(RpcError, match="closed"):
        _ = stream.header


@dataclass
class Late(ProducerState):
    left: int

    def produce(self, out: OutputCollector, ctx: CallContext) -> None:  # noqa: ARG002
        out.client_log(Level.INFO, f"{self.left} left")
        out.emit_pydict({"value": [float(self.left)]})
        self.left -= 1
        if self.left == 0:
            raise ValueError("after its batch")


@dataclass
class Twice(ExchangeState):
    def exchange(self, input: AnnotatedBatch, out: OutputCollector, ctx: CallContext) -> None:  # noqa: A002, ARG002
        out.emit(input.batch)
        out.emit(input.batch)


class Failing(Protocol):
    def late(self, n: int) -> Stream[Late]: ...
    def twice(self) -> Stream[Twice]: ...


class FailingImpl:
    def late(self, n: int) -> Stream[Late]:
        return Stream(output_schema=VALUES, state=Late(n))

    def twice(self) -> Stream[Twice]:
        return Stream(output_schema=VALUES, state=Twice(), input_schema=VALUES)


@pytest.mark.parametrize("serve", [serve_pipe, serve_unix_pipe], ids=["pipe", "unix"])
def test_a_step_that_fails_after_its_batch_answers_with_the_error_alone(serve: Any) -> None:
    logs: list[Message] = []
    with serve(Failing, FailingImpl(), on_log=logs.append) as service:
        stream = service.late(n=2)
        assert stream.tick().batch.to_pydict() == {"value": [2.0]}
        with pytest.raises(RpcError, match="after its batch"):
            stream.tick()
        stream = service.twice()
        with pytest.raises(RpcError, match="only one data batch"):
            stream.exchange(values(1.0))
    # Its messages arrive nevertheless.
    assert [each.message for each in logs] == ["2 left", "1 left"]
