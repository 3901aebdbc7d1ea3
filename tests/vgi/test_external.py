"""Batches in object stores: results, streams and requests by way of one, and stores and pointers that mean no good."""

import doctest
import importlib
import io
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import zstandard
from shelf import Shelf, running_shelf

from penstock.tls import write_certificates
from penstock.vgi import (
    AnnotatedBatch,
    ArrowSerializableDataclass,
    CallContext,
    ClientExternalConfig,
    Compression,
    ExchangeState,
    ExternalLocationConfig,
    FetchConfig,
    Level,
    Message,
    OutputCollector,
    ProducerState,
    RpcError,
    RpcServer,
    Stream,
    http_capabilities,
    http_connect,
    make_pipe_pair,
    make_sync_client,
    request_upload_urls,
    serve_pipe,
)
from penstock.vgi.external import ExternalLocationError
from penstock.vgi.external_fetch import fetch_url
from penstock.vgi.file import FileStorage
from penstock.vgi.http import HttpServer
from penstock.vgi.metadata import LOCATION_FETCH_MS_KEY, LOCATION_KEY, LOCATION_SOURCE_KEY
from penstock.vgi.rpc import serve_unix_pipe

VALUES = pa.schema([("value", pa.float64())])
BIG = "big" * 2_000
THRESHOLD = 4_000


@dataclass(frozen=True)
class About(ArrowSerializableDataclass):
    text: str


@dataclass
class Countdown(ProducerState):
    n: int

    def produce(self, out: OutputCollector, ctx: CallContext) -> None:
        if self.n == 0:
            out.finish()
            return
        out.client_log(Level.INFO, f"{self.n} left")
        out.emit_pydict({"value": [float(self.n)] * 1_000}, {"step": str(self.n)})
        self.n -= 1


@dataclass
class Scale(ExchangeState):
    factor: float

    def exchange(self, input: AnnotatedBatch, out: OutputCollector, ctx: CallContext) -> None:
        self.factor += 1.0
        out.client_log(Level.WARN, f"{input.batch.num_rows} values")
        out.emit_arrays([pc.multiply(input.batch["value"], self.factor - 1.0)])


class Service(Protocol):
    def echo(self, text: str) -> str: ...
    def count(self, n: int, text: str) -> Stream[Countdown, About]: ...
    def scale(self, factor: float) -> Stream[Scale]: ...


class ServiceImpl:
    def echo(self, text: str, ctx: CallContext) -> str:
        ctx.client_log(Level.INFO, f"{len(text)} characters")
        return text

    def count(self, n: int, text: str) -> Stream[Countdown, About]:
        return Stream(output_schema=VALUES, state=Countdown(n), header=About(text))

    def scale(self, factor: float) -> Stream[Scale]:
        return Stream(output_schema=VALUES, state=Scale(factor), input_schema=VALUES)


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    with running_shelf() as made:
        yield made


@contextmanager
def over_http(
    protocol: type, implementation: object, *, on_log: Any, external_location: Any, dialect: str
) -> Iterator[Any]:
    server = RpcServer(protocol, implementation, external_location=external_location, dialect=dialect)
    with (
        HttpServer(server) as running,
        http_connect(protocol, running.url, on_log=on_log, external_location=external_location) as proxy,
    ):
        yield proxy


def spec(*arguments: Any, **options: Any) -> Any:
    return over_http(*arguments, **options, dialect="spec")


def package(*arguments: Any, **options: Any) -> Any:
    return over_http(*arguments, **options, dialect="0.10")


def use_all(serve: Callable[..., Any], config: ExternalLocationConfig) -> tuple[list[str], list[AnnotatedBatch]]:
    """Use a service in all ways; gives what was logged, and the batches that came."""
    logged: list[Message] = []
    with serve(Service, ServiceImpl(), on_log=logged.append, external_location=config) as service:
        assert service.echo(text="small") == "small"
        assert service.echo(text=BIG) == BIG
        stream = service.count(n=2, text=BIG)
        assert stream.header == About(BIG)
        batches = list(stream)
        with service.scale(factor=2.0) as scaled:
            for factor in (2.0, 3.0):
                given = AnnotatedBatch.from_pydict({"value": [1.0] * 1_000})
                batches.append(scaled.exchange(given))
                assert batches[-1].batch["value"][999].as_py() == factor
            assert scaled.exchange(AnnotatedBatch.from_pydict({"value": [1.0]})).batch.to_pydict() == {"value": [4.0]}
        assert service.echo(text="after") == "after"
    return [each.message for each in logged], batches


LOGGED = [
    "5 characters",
    "6000 characters",
    "2 left",
    "1 left",
    "1000 values",
    "1000 values",
    "1 values",
    "5 characters",
]


@pytest.mark.parametrize("serve", [serve_pipe, serve_unix_pipe, spec, package])
@pytest.mark.parametrize("compression", [None, Compression(level=9)])
def test_results_streams_and_headers_go_by_a_store_of_the_users_own(
    shelf: Shelf, serve: Callable[..., Any], compression: Compression | None
) -> None:
    config = ExternalLocationConfig(shelf, THRESHOLD, compression=compression, url_validator=None)
    logged, batches = use_all(serve, config)
    assert logged == LOGGED
    assert len(batches) == 4
    for each in batches:
        said = dict(each.custom_metadata or {})
        assert said[LOCATION_SOURCE_KEY].startswith(shelf.url.encode())
        assert float(said[LOCATION_FETCH_MS_KEY]) >= 0.0
        assert LOCATION_KEY not in said
        assert not any(b"stream_state" in key for key in said)
    assert batches[0].custom_metadata is not None
    assert batches[0].custom_metadata[b"step"] == b"2"
    # The result, the header, two batches and two answers; what is small stays on the wire.
    assert len(shelf.objects) == 6
    assert {coding for _, coding in shelf.objects.values()} == {"zstd" if compression else None}


@pytest.mark.parametrize("serve", [serve_pipe, spec])
def test_a_folder_is_a_store_too(tmp_path: Path, serve: Callable[..., Any]) -> None:
    storage = FileStorage(tmp_path)
    logged, batches = use_all(serve, ExternalLocationConfig(storage, THRESHOLD, compression=Compression()))
    assert logged == LOGGED
    assert len(list(tmp_path.glob("*.arrow.zst"))) == 6
    assert batches[0].custom_metadata is not None
    assert batches[0].custom_metadata[LOCATION_SOURCE_KEY].startswith(b"file:///")


def test_who_is_not_told_of_a_store_gets_the_pointer(shelf: Shelf) -> None:
    config = ExternalLocationConfig(shelf, THRESHOLD, url_validator=None)
    with (
        HttpServer(RpcServer(Service, ServiceImpl(), external_location=config)) as running,
        http_connect(Service, running.url) as service,
    ):
        answer = service.scale(factor=1.0).exchange(AnnotatedBatch.from_pydict({"value": [1.0] * 1_000}))
        assert answer.batch.num_rows == 0
        assert answer.custom_metadata is not None
        assert answer.custom_metadata[LOCATION_KEY].startswith(shelf.url.encode())


def test_a_store_that_fails_fails_the_call_alone() -> None:
    class Broken:
        def upload(self, data: bytes, schema: pa.Schema, *, content_encoding: str | None = None) -> str:
            raise OSError("the store is full")

    config = ExternalLocationConfig(Broken(), THRESHOLD)
    for serve in (serve_pipe, spec):
        with serve(Service, ServiceImpl(), on_log=None, external_location=config) as service:
            with pytest.raises(RpcError, match="the store is full"):
                service.echo(text=BIG)
            with pytest.raises(RpcError, match="the store is full"), service.scale(factor=1.0) as stream:
                stream.exchange(AnnotatedBatch.from_pydict({"value": [1.0] * 1_000}))
            assert service.echo(text="after") == "after"


def stream_of(*batches: tuple[pa.RecordBatch, dict[bytes, bytes] | None]) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batches[0][0].schema) as writer:
        for batch, metadata in batches:
            writer.write_batch(batch, custom_metadata=metadata)
    return sink.getvalue()


def result(text: str, name: str = "result") -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([text])], schema=pa.schema([pa.field(name, pa.string(), False)]))


def redirected(handler: Any) -> bool:
    handler.answer(302, b"", Location="http://127.0.0.1:1/elsewhere")
    return True


def gone(handler: Any) -> bool:
    handler.answer(410, b"")
    return True


def liar(handler: Any) -> bool:
    """Says that there is little, and sends much."""
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    if handler.command == "GET":
        for _ in range(100):
            handler.wfile.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
    return True


def greedy(handler: Any) -> bool:
    handler.send_response(200)
    handler.send_header("Content-Length", str(1 << 40))
    handler.end_headers()
    return True


def strange(handler: Any) -> bool:
    handler.answer(200, b"x", Content_Encoding="br")
    return True


FETCH = FetchConfig(max_fetch_bytes=100_000)
LOG = {b"vgi_rpc.log_level": b"INFO", b"vgi_rpc.log_message": b"m"}
LOOP = stream_of((result("x").slice(0, 0), {LOCATION_KEY: b"https://host/again"}))


@pytest.mark.parametrize("serve", [serve_pipe, spec])
@pytest.mark.parametrize(
    ("change", "misbehave", "why"),
    [
        (lambda _: LOOP, None, "SHA-256"),
        (lambda data: data[:-20] + b"\0" * 20, None, "SHA-256"),
        (lambda _: zstandard.compress(bytes(10_000_000)), None, "inflates to more than 100000"),
        (None, redirected, "redirect"),
        (None, gone, "attempts: 3.*410"),
        (None, liar, "more than the 100000"),
        (None, greedy, "more than the 100000"),
        (None, strange, "br"),
    ],
)
def test_what_is_wrong_with_a_store_is_said_and_the_connection_goes_on(
    shelf: Shelf, serve: Callable[..., Any], change: Any, misbehave: Any, why: str
) -> None:
    bomb = "inflates" in why
    shelf.change = change or shelf.change
    shelf.misbehave = misbehave or shelf.misbehave
    config = ExternalLocationConfig(
        shelf,
        THRESHOLD,
        retry_delay_seconds=0.0,
        fetch_config=FETCH,
        compression=Compression() if bomb else None,
        url_validator=None,
    )
    with serve(Service, ServiceImpl(), on_log=None, external_location=config) as service:
        with pytest.raises(ExternalLocationError, match=why):
            service.echo(text=BIG)
        with pytest.raises(ExternalLocationError, match=why), service.scale(factor=1.0) as stream:
            stream.exchange(AnnotatedBatch.from_pydict({"value": [1.0] * 1_000}))
        assert service.echo(text="after") == "after"


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        (LOOP, "redirect loop"),
        (stream_of((result("x", "other"), None)), "Schema mismatch"),
        (stream_of((result("x"), None), (result("y"), None)), "more than one batch"),
        (
            stream_of((result("x").slice(0, 0), {b"vgi_rpc.log_level": b"INFO", b"vgi_rpc.log_message": b"m"})),
            "no batch",
        ),
        (b"no Arrow at all", "attempts: 3"),
    ],
)
def test_a_pointer_without_a_sum_leads_to_one_batch_of_its_schema(stored: bytes, why: str) -> None:
    # What a worker of somebody else's answers: a pointer by hand.
    with running_shelf() as shelf:
        url = shelf.upload(stored, VALUES)
        answer = stream_of((result("x").slice(0, 0), {LOCATION_KEY: url.encode()}))

        class Canned:
            prefix = ""

            def request(self, method: str, url: str, *, headers: Any, content: bytes) -> Any:
                return type("Answer", (), {"status_code": 200, "headers": {}, "content": answer})

        config = ClientExternalConfig(url_validator=None, retry_delay_seconds=0.0)
        with (
            http_connect(Service, client=Canned(), external_location=config) as service,
            pytest.raises(ExternalLocationError, match=why),
        ):
            service.echo(text="x")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://example.org/x", "scheme 'http' not allowed"),
        ("ftp://example.org/x", "scheme 'ftp' not allowed"),
        ("file:///etc/passwd", "scheme 'file' not allowed"),
        ("https://127.0.0.1/x", "not a public address"),
        ("https://localhost/x", "not a public address"),
        ("https://169.254.169.254/latest/meta-data", "not a public address"),
        ("https://[::1]/x", "not a public address"),
        ("https://[::ffff:10.0.0.1]/x", "not a public address"),
        ("https://0x7f.1/x", "not a public address"),
        ("https://2130706433/x", "not a public address"),
    ],
)
def test_by_default_a_url_is_https_and_leads_to_no_private_address(url: str, why: str) -> None:
    class Elsewhere:
        def upload(self, data: bytes, schema: pa.Schema, *, content_encoding: str | None = None) -> str:
            return url

    config = ExternalLocationConfig(Elsewhere(), THRESHOLD)
    with serve_pipe(Service, ServiceImpl(), external_location=config) as service:
        with pytest.raises(ExternalLocationError, match=why):
            service.echo(text=BIG)
        assert service.echo(text="after") == "after"


def test_a_validator_of_ones_own_decides(shelf: Shelf) -> None:
    asked: list[str] = []

    def validator(url: str) -> None:
        asked.append(url)
        if url.endswith("/1"):
            raise ValueError("not this one")

    config = ExternalLocationConfig(shelf, THRESHOLD, url_validator=validator)
    with serve_pipe(Service, ServiceImpl(), external_location=config) as service:
        assert service.echo(text=BIG) == BIG
        with pytest.raises(ValueError, match="not this one"):
            service.echo(text=BIG)
    assert asked == [f"{shelf.url}/0", f"{shelf.url}/1"]
    refusing = FetchConfig(allow_private_addresses=False)
    with pytest.raises(ExternalLocationError, match="not a public address"):
        fetch_url(asked[0], refusing)


def test_a_fetch_has_its_time(shelf: Shelf) -> None:
    over = threading.Event()

    def silent(handler: Any) -> bool:
        handler.send_response(200)
        handler.send_header("Content-Length", "10")
        handler.end_headers()
        if handler.command == "GET":
            handler.wfile.write(b"x")
            handler.wfile.flush()
            over.wait(60)
        return True

    shelf.misbehave = silent
    with pytest.raises(ExternalLocationError, match=r"longer than 0\.2 seconds"):
        fetch_url(shelf.url + "/0", FetchConfig(timeout_seconds=0.2))
    over.set()


def test_a_large_object_comes_in_parts_and_a_late_part_is_asked_for_again(shelf: Shelf) -> None:
    data = bytes(range(256)) * 40
    url = shelf.upload(data, VALUES)
    again = threading.Event()
    late: list[Any] = []

    def hold(handler: Any) -> bool:
        if handler.headers["Range"] == "bytes=3000-3999":
            late.append(handler)
            if len(late) == 1:
                assert again.wait(60)
            again.set()
        return False

    shelf.misbehave = hold
    config = FetchConfig(parallel_threshold_bytes=5_000, chunk_size_bytes=1_000, max_parallel_requests=4)
    with config:
        assert fetch_url(url, config) == data
    parts = sorted(wanted for method, _, wanted in shelf.requests if method == "GET" and wanted)
    assert len(late) == 2
    assert parts.count("bytes=3000-3999") >= 2
    assert {f"bytes={at}-{min(at + 999, 10_239)}" for at in range(0, 10_240, 1_000)} == set(parts)
    # One that is small, or that its configuration takes for small, comes whole.
    shelf.requests.clear()
    shelf.misbehave = lambda _: False
    assert fetch_url(url, FetchConfig()) == data
    assert shelf.requests == [("HEAD", "/0", None), ("GET", "/0", None)]


@pytest.mark.parametrize("wrong", ["all", "less"])
def test_a_part_is_what_was_asked_for(shelf: Shelf, wrong: str) -> None:
    url = shelf.upload(b"x" * 10_000, VALUES)

    def cheat(handler: Any) -> bool:
        if handler.command == "HEAD":
            return False
        handler.answer(200 if wrong == "all" else 206, b"x" * (10_000 if wrong == "all" else 500))
        return True

    shelf.misbehave = cheat
    with pytest.raises(ExternalLocationError, match="were requested"):
        fetch_url(url, FetchConfig(parallel_threshold_bytes=5_000, chunk_size_bytes=1_000))


@pytest.mark.parametrize("dialect", ["spec", "0.10"])
def test_a_request_that_is_too_large_is_put_where_the_server_says(shelf: Shelf, dialect: str) -> None:
    config = ExternalLocationConfig(url_validator=None)
    server = RpcServer(Service, ServiceImpl(), external_location=config, dialect=dialect)
    options: Any = {"upload_url_provider": shelf, "max_request_bytes": 5_000, "max_upload_bytes": 50_000}
    with HttpServer(server, **options) as running:
        said = http_capabilities(running.url)
        assert (said.max_request_bytes, said.upload_url_support, said.max_upload_bytes) == (5_000, True, 50_000)
        urls = request_upload_urls(running.url, count=3)
        assert len({each.upload_url for each in urls}) >= 1
        assert len(urls) == 3
        assert urls[0].expires_at.tzinfo is not None
        assert len(request_upload_urls(running.url, count=1_000)) == 100
        assert len(request_upload_urls(running.url, count=-1)) == 1
        shelf.requests.clear()
        with http_connect(Service, running.url, external_location=config, compression_level=None) as service:
            assert service.echo(text=BIG) == BIG
            assert service.count(n=0, text=BIG).header == About(BIG)
            stream = service.scale(factor=2.0)
            answer = stream.exchange(AnnotatedBatch.from_pydict({"value": [1.0] * 1_000}))
            assert answer.batch["value"].to_pylist() == [2.0] * 1_000
            assert stream.exchange(AnnotatedBatch.from_pydict({"value": [1.0]})).batch.to_pydict() == {"value": [3.0]}
            assert shelf.methods().count("PUT") == 3
            with pytest.raises(RpcError, match=r"ExternalUploadFailed.*50000"):
                service.echo(text="x" * 60_000)
        # The default takes nobody's word for where http:// leads.
        with (
            http_connect(Service, running.url, compression_level=None) as service,
            pytest.raises(RpcError, match=r"ExternalUploadFailed.*'http' not allowed"),
        ):
            service.echo(text=BIG)


def test_what_a_caller_points_at_is_fetched_with_care(shelf: Shelf) -> None:
    shelf.objects["/0"] = (stream_of((result("x"), None)), None)
    allowed = ExternalLocationConfig(url_validator=None, retry_delay_seconds=0.0)
    asked = {b"vgi_rpc.method": b"echo", b"vgi_rpc.request_version": b"1"}
    text = result("x", "text").slice(0, 0)
    for config, url, why in [
        (allowed, f"{shelf.url}/0", "Schema mismatch"),
        (allowed, f"{shelf.url}/nothing", "404"),
        (ExternalLocationConfig(), f"{shelf.url}/0", "not allowed"),
        (ExternalLocationConfig(), "https://127.0.0.1/0", "not a public address"),
    ]:
        body = stream_of((text, {**asked, LOCATION_KEY: url.encode()}))
        client = make_sync_client(RpcServer(Service, ServiceImpl(), external_location=config))
        answer = client.post("/vgi/echo", content=body, headers={"Content-Type": "application/vnd.apache.arrow.stream"})
        assert answer.status_code == 400
        assert why in answer.content.decode("latin-1")


def test_without_a_provider_there_are_no_urls() -> None:
    with HttpServer(RpcServer(Service, ServiceImpl())) as running:
        with pytest.raises(RpcError) as raised:
            request_upload_urls(running.url)
        assert raised.value.error_type == "NotSupported"
        assert http_capabilities(running.url).upload_url_support is False


def test_configurations_survive_a_pickle(tmp_path: Path) -> None:
    config = ExternalLocationConfig(FileStorage(tmp_path), 1, fetch_config=FetchConfig(max_fetch_bytes=5))
    assert pickle.loads(pickle.dumps(config)) == config
    error = ExternalLocationError("ExternalLocationError", "no", "")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    with pytest.raises(ValueError, match="chunk_size_bytes"):
        FetchConfig(chunk_size_bytes=0)
    with pytest.raises(ValueError, match="level"):
        Compression(level=23)


def test_over_a_pipe_requests_and_inputs_may_be_pointers(shelf: Shelf) -> None:
    config = ExternalLocationConfig(url_validator=None, retry_delay_seconds=0.0)
    ours, theirs = make_pipe_pair()
    server = RpcServer(Service, ServiceImpl(), external_location=config)
    thread = threading.Thread(target=server.serve, args=(theirs,), daemon=True)
    thread.start()
    there = shelf.upload(stream_of((result("hello", "text"), None)), VALUES)
    asked = {b"vgi_rpc.method": b"echo", b"vgi_rpc.request_version": b"1"}

    def ask(url: str) -> tuple[pa.RecordBatch, dict[bytes, bytes]]:
        ours.writer.write(stream_of((result("x", "text").slice(0, 0), {**asked, LOCATION_KEY: url.encode()})))
        ours.writer.flush()
        with pa.ipc.open_stream(ours.reader) as answer:
            *_, (batch, metadata) = answer.iter_batches_with_custom_metadata()
        return batch, dict(metadata or {})

    assert ask(there)[0].to_pydict() == {"result": ["hello"]}
    for url, why in [(f"{shelf.url}/nothing", b"404"), (shelf.upload(LOOP, VALUES), b"redirect loop")]:
        _, said = ask(url)
        assert said[b"vgi_rpc.log_level"] == b"EXCEPTION"
        assert why in said[b"vgi_rpc.log_message"]
    assert ask(there)[0].to_pydict() == {"result": ["hello"]}

    values = pa.record_batch({"value": [1.0, 2.0]}, schema=VALUES)
    there = shelf.upload(stream_of((values, None)), VALUES)
    factor = pa.record_batch({"factor": [2.0]}, schema=pa.schema([pa.field("factor", pa.float64(), False)]))
    ours.writer.write(stream_of((factor, {**asked, b"vgi_rpc.method": b"scale"})))
    with pa.ipc.new_stream(ours.writer, VALUES) as given:
        given.write_batch(values.slice(0, 0), custom_metadata={LOCATION_KEY: there.encode()})
        ours.writer.flush()
        answers = pa.ipc.open_stream(ours.reader)
        answers.read_next_batch()  # What the method has logged.
        assert answers.read_next_batch().to_pydict() == {"value": [2.0, 4.0]}
        given.write_batch(values.slice(0, 0), custom_metadata={LOCATION_KEY: f"{shelf.url}/nothing".encode()})
        ours.writer.flush()
        _, said = answers.read_next_batch_with_custom_metadata()
        assert b"404" in dict(said)[b"vgi_rpc.log_message"]
    with pytest.raises(StopIteration):
        answers.read_next_batch()
    assert ask(shelf.upload(stream_of((result("after", "text"), None)), VALUES))[0].to_pydict() == {"result": ["after"]}
    ours.close()
    thread.join()


def test_https_is_fetched_from_whom_the_system_trusts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_certificates(tmp_path)
    with running_shelf(tmp_path) as secure:
        secure.objects["/0"] = (b"bytes", None)
        with pytest.raises(ExternalLocationError, match="certificate"):
            fetch_url(f"{secure.url}/0", FetchConfig())
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        assert fetch_url(f"{secure.url}/0", FetchConfig()) == b"bytes"


@pytest.mark.parametrize("name", ["azure", "external", "external_fetch", "file", "gcs", "s3"])
def test_the_examples_in_docstrings(name: str) -> None:
    results = doctest.testmod(importlib.import_module(f"penstock.vgi.{name}"))
    assert results.failed == 0
    assert results.attempted >= 2
