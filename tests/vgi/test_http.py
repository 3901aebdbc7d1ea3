"""Calls over HTTP in both dialects: what goes well, what goes wrong, and with which status."""

import asyncio
import http.client
import io
import json
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pytest
from worker import VALUES, About, Service, ServiceImpl

from penstock import _core
from penstock.tls import write_certificates
from penstock.vgi import (
    AnnotatedBatch,
    AuthContext,
    CallContext,
    HttpRetryConfig,
    HttpTransientError,
    Message,
    RpcError,
    RpcServer,
    http_capabilities,
    http_connect,
    http_introspect,
    make_sync_client,
    serve_pipe,
)
from penstock.vgi.http import HttpServer, bearer_authenticate_static, make_asgi_app, make_wsgi_app
from penstock.vgi.utils import serialize_record_batch

ARROW = "application/vnd.apache.arrow.stream"
TOKEN = {"spec": b"vgi_rpc.stream_state", "0.10": b"vgi_rpc.stream_state#b64"}
FLOATS = pa.schema([("a", pa.float64())])
GOOD = {b"vgi_rpc.method": b"add", b"vgi_rpc.request_version": b"1"}


@pytest.fixture(scope="module", params=["spec", "0.10"])
def running(request: pytest.FixtureRequest) -> Iterator[HttpServer]:
    server = RpcServer(Service, ServiceImpl(), enable_describe=True, dialect=request.param)
    with HttpServer(server, max_request_bytes=1 << 20, cors_origins="https://pages.example") as made:
        made.dialect = request.param  # type: ignore[attr-defined]
        made.prefix = "/vgi" if request.param == "spec" else ""  # type: ignore[attr-defined]
        yield made


@pytest.fixture
def service(running: HttpServer) -> Iterator[Any]:
    with http_connect(Service, running.url) as proxy:
        yield proxy


def body(columns: dict[str, object], metadata: dict[bytes, bytes], schema: pa.Schema = FLOATS) -> bytes:
    sink = io.BytesIO()
    batch = pa.RecordBatch.from_pydict({name: [value] for name, value in columns.items()}, schema=schema)
    serialize_record_batch(sink, batch, pa.KeyValueMetadata(metadata))
    return sink.getvalue()


def ask(
    running: HttpServer, method: str, path: str, content: bytes = b"", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=30)
    try:
        connection.request(
            method,
            running.prefix + path,  # type: ignore[attr-defined]
            content,
            {name.replace("_", "-"): value for name, value in headers.items()},
        )
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def said(answer: bytes) -> tuple[pa.RecordBatch, dict[bytes, bytes]]:
    batch, metadata = pa.ipc.open_stream(answer).read_next_batch_with_custom_metadata()
    return batch, dict(metadata or {})


def kind_of(answer: bytes) -> str:
    """The class of the error that an answer is, nothing for a result."""
    return str(json.loads(said(answer)[1].get(b"vgi_rpc.log_extra", b"{}")).get("exception_type", ""))


def values(*numbers: float) -> AnnotatedBatch:
    return AnnotatedBatch.from_pydict({"value": list(numbers)})


def test_a_service_is_called_as_over_a_pipe(service: Any) -> None:
    assert service.add(a=1) == 3.0
    with pytest.raises(RpcError, match="boom") as raised:
        service.boom(text="boom")
    assert (raised.value.error_type, raised.value.error_message) == ("ValueError", "ValueError: boom")
    batches = list(service.count(n=3))
    assert [each.batch["value"].to_pylist() for each in batches] == [[3.0], [2.0], [1.0]]
    assert dict(batches[0].custom_metadata) == {b"step": b"3"}
    stream = service.count_with(n=1)
    assert stream.header == About(1)
    assert not hasattr(stream, "tick")
    assert len(list(stream)) == 1
    stream = service.count_with(n=1)
    assert len(list(stream)) == 1
    assert stream.header == About(1)
    with service.scale(factor=2.0) as stream:
        # Other calls may be made meanwhile, and ints are cast as over a pipe.
        assert stream.exchange(values(1.0)).batch.to_pydict() == {"value": [2.0]}
        assert service.add(a=2.0) == 4.0
        assert stream.exchange(AnnotatedBatch.from_pydict({"value": [2, 3]})).batch.to_pydict() == {"value": [4.0, 6.0]}
        assert stream.exchange(values()).custom_metadata is None
        with pytest.raises(RpcError, match="Input schema mismatch"):
            stream.exchange(AnnotatedBatch.from_pydict({"other": ["a"]}))


def test_logs_reach_the_caller_in_their_order(running: HttpServer) -> None:
    logs: list[Message] = []
    with http_connect(Service, running.url, on_log=logs.append) as service:
        list(service.count(n=2))
        service.scale(factor=1.0).exchange(values(1.0, 2.0))
    assert [each.message for each in logs] == ["2 left", "1 left", "2 values"]


@pytest.mark.parametrize("method", ["count", "count_with"])
def test_an_error_of_a_streams_beginning_is_raised_at_once(service: Any, method: str) -> None:
    with pytest.raises(RpcError, match="n is negative"):
        getattr(service, method)(n=-1)


def test_a_cancelled_stream_is_over(service: Any) -> None:
    stream = service.scale(factor=2.0)
    stream.exchange(values(1.0))
    stream.cancel()
    stream.cancel()
    with pytest.raises(RpcError, match="closed or cancelled"):
        stream.exchange(values(1.0))


def test_what_is_wrong_with_a_request_has_its_status(running: HttpServer) -> None:
    spec = running.dialect == "spec"  # type: ignore[attr-defined]
    good = body({"a": 1.0}, GOOD)

    def post(path: str, content: bytes, kind: str = ARROW) -> tuple[int, str]:
        status, headers, answer = ask(running, "POST", path, content, Content_Type=kind)
        return status, kind_of(answer) if headers.get("content-type") == ARROW else ""

    assert post("/add", b"no arrow")[0] == 400
    assert post("/add", good[:-20])[0] == 400
    assert post("/add", body({"a": 1.0}, {b"vgi_rpc.method": b"add"})) == (400, "VersionError")
    assert post("/add", body({"a": 1.0}, GOOD | {b"vgi_rpc.method": b"boom"})) == (400, "TypeError")
    assert post("/add", body({"a": None}, GOOD)) == (400, "TypeError")
    assert post("/nope", good) == (404, "AttributeError")
    assert post("/add/init", good) == (400, "TypeError")
    assert post("/count", good) == (400, "TypeError")
    assert post("/count/exchange", good) == (400, "RuntimeError")
    assert post("/add", good, "text/plain") == (415, "" if spec else "TypeError")
    assert post("/add", good, f"{ARROW}; charset=utf-8")[0] == (200 if spec else 415)
    assert post("/a/b/c", good)[0] == 404
    assert ask(running, "PUT", "/add", good)[0] == 405
    # A null of a parameter: on the schema of the result, or on the empty one.
    empty = said(ask(running, "POST", "/add", body({"a": None}, GOOD), Content_Type=ARROW)[2])[0].schema.names
    assert empty == (["result"] if spec else [])


def test_an_exception_is_500_and_a_type_error_400(running: HttpServer) -> None:
    spec = running.dialect == "spec"  # type: ignore[attr-defined]
    text = pa.schema([("text", pa.utf8())])
    called = body({"text": "no"}, GOOD | {b"vgi_rpc.method": b"boom"}, text)
    status, headers, answer = ask(running, "POST", "/boom", called, Content_Type=ARROW, X_Request_ID="mine")
    assert (status, headers.get("x-vgi-rpc-error")) == ((500, None) if spec else (200, "true"))
    assert kind_of(answer) == "ValueError"
    assert headers["x-request-id"] == "mine"
    assert said(answer)[1][b"vgi_rpc.request_id"] == b"mine"
    nothing = body({}, GOOD | {b"vgi_rpc.method": b"nothing"}, pa.schema([]))
    assert ask(running, "POST", "/nothing", nothing, Content_Type=ARROW)[0] == 400


def test_a_token_that_is_not_the_servers_or_not_the_methods_is_refused(running: HttpServer) -> None:
    key = TOKEN[running.dialect]  # type: ignore[attr-defined]
    factor = pa.schema([("factor", pa.float64())])
    begun = body({"factor": 2.0}, GOOD | {b"vgi_rpc.method": b"scale"}, factor)
    status, _, answer = ask(running, "POST", "/scale/init", begun, Content_Type=ARROW)
    assert status == 200
    token = said(answer)[1][key]

    def exchange(token: bytes, method: str = "scale") -> tuple[int, str]:
        content = body({"value": 1.0}, {key: token}, VALUES)
        status, _, answer = ask(running, "POST", f"/{method}/exchange", content, Content_Type=ARROW)
        return status, "" if status == 200 else said(answer)[1][b"vgi_rpc.log_message"].decode()

    assert exchange(token) == (200, "")
    # Nothing of a stream is kept: the same token is good again.
    assert exchange(token) == (200, "")
    assert exchange(token, "silent")[0] == 400
    forged = bytes([token[0] ^ 1]) + token[1:] if key == b"vgi_rpc.stream_state" else b"A" * 4 + token[4:]
    assert exchange(forged) == (400, "RuntimeError: State token verification failed")
    assert exchange(b"")[0] == 400


def test_a_token_expires() -> None:
    server = RpcServer(Service, ServiceImpl())
    app = make_wsgi_app(server, signing_key=b"k" * 16, token_ttl=10)
    state = pa.schema([])
    old = _core.vgi_token_seal(b"k" * 16, "spec", (1_000, b"state", VALUES, state, ""), None)
    content = body({"value": 1.0}, {TOKEN["spec"]: old}, VALUES)
    status, _, answer = app.respond("POST", "/vgi/scale/exchange", "", [("Content-Type", ARROW)], content, "")
    assert (status, said(answer)[1][b"vgi_rpc.log_message"]) == (400, b"RuntimeError: State token expired")


def test_bodies_are_limited_and_bombs_do_not_inflate(running: HttpServer) -> None:
    # Larger than the limit: it is read to its end, so that the sender sees why it is refused.
    assert ask(running, "POST", "/add", bytes(8 << 20), Content_Type=ARROW)[0] == 413
    bomb = pa.compress(bytes(64 << 20), "zstd", asbytes=True)
    assert len(bomb) < 1 << 16
    status, _, answer = ask(running, "POST", "/add", bomb, Content_Type=ARROW, Content_Encoding="zstd")
    assert (status, kind_of(answer)) == (413, "ProtocolError")
    assert b"inflates to more than" in said(answer)[1][b"vgi_rpc.log_message"]
    assert ask(running, "POST", "/add", bomb, Content_Type=ARROW, Content_Encoding="br")[0] == 415


def test_bodies_go_as_zstd_where_both_ends_take_it(running: HttpServer) -> None:
    good = pa.compress(body({"a": 1.0}, GOOD), "zstd", asbytes=True)
    assert ask(running, "POST", "/add", good, Content_Type=ARROW, Content_Encoding="zstd")[0] == 200
    with http_connect(Service, running.url) as service:
        stream = service.scale(factor=1.0)
        many = values(*[1.0] * 10_000)
        assert stream.exchange(many).batch.equals(many.batch)
    described = body({}, GOOD | {b"vgi_rpc.method": b"__describe__"}, pa.schema([]))
    _, headers, answer = ask(running, "POST", "/__describe__", described, Content_Type=ARROW, Accept_Encoding="zstd")
    assert headers["content-encoding"] == "zstd"
    assert answer.startswith(b"\x28\xb5\x2f\xfd")


def test_pages_capabilities_and_origins(running: HttpServer) -> None:
    status, headers, page = ask(running, "GET", "/health")
    assert (status, headers["content-type"]) == (200, "application/json")
    assert json.loads(page)["status"] == "ok"
    assert b"<h1>Service</h1>" in ask(running, "GET", "/")[2]
    assert b"Add two numbers." in ask(running, "GET", "/describe")[2]
    assert ask(running, "GET", "/no/such/page")[0] == 404
    about = http_capabilities(running.url)
    assert (about.max_request_bytes, about.upload_url_support) == (1 << 20, False)
    assert about.cache_expires_at is not None
    origin = "https://pages.example"
    _, headers, _ = ask(running, "OPTIONS", "/add", Origin=origin, Access_Control_Request_Headers="content-type")
    assert headers["access-control-allow-origin"] == origin
    assert headers["access-control-allow-headers"] == "content-type"
    assert "access-control-allow-origin" not in ask(running, "GET", "/health", Origin="https://other.example")[1]
    assert set(http_introspect(running.url).methods) >= {"add", "count"}


class Known(Protocol):
    def who(self) -> str: ...
    def remember(self, name: str) -> str: ...
    def forget(self) -> None: ...


class KnownImpl:
    def who(self, ctx: CallContext) -> str:
        return ctx.auth.principal or ctx.cookies.get("name", "nobody")

    def remember(self, name: str, ctx: CallContext) -> str:
        ctx.set_cookie("name", name, secure=True)
        return name

    def forget(self, ctx: CallContext) -> None:
        ctx.delete_cookie("name", path="/")


@pytest.mark.parametrize("dialect", ["spec", "0.10"])
def test_who_calls_is_found_out_first(dialect: Any) -> None:
    tokens = {"s3cret": AuthContext("key", True, "alice")}
    server = RpcServer(Known, KnownImpl(), dialect=dialect)
    options: Any = {"authenticate": bearer_authenticate_static(tokens=tokens)}
    with HttpServer(server, **options) as running:
        with http_connect(Known, running.url, headers={"Authorization": "Bearer s3cret"}) as known:
            assert known.who() == "alice"
        with http_connect(Known, running.url) as unknown, pytest.raises(RpcError) as raised:
            unknown.who()
    assert raised.value.error_type == "AuthenticationError"
    client = make_sync_client(server, **options)
    answer = client.post(f"{client.prefix}/who", content=b"", headers={"Content-Type": ARROW})
    assert answer.status_code == 401
    assert answer.headers["Content-Type"].startswith("text/plain" if dialect == "spec" else "text/html")
    assert client.get(f"{client.prefix}/health").status_code == 200


def test_a_token_of_the_dialect_0_10_belongs_to_its_caller() -> None:
    tokens = {name: AuthContext("key", True, name) for name in ("alice", "bob")}
    server = RpcServer(Service, ServiceImpl(), dialect="0.10")
    app = make_wsgi_app(server, authenticate=bearer_authenticate_static(tokens=tokens))

    def post(path: str, content: bytes, name: str) -> tuple[int, bytes]:
        headers = [("Content-Type", ARROW), ("Authorization", f"Bearer {name}")]
        status, _, answer = app.respond("POST", path, "", headers, content, "")
        return status, answer

    factor = pa.schema([("factor", pa.float64())])
    _, answer = post("/scale/init", body({"factor": 2.0}, GOOD | {b"vgi_rpc.method": b"scale"}, factor), "alice")
    content = body({"value": 1.0}, {TOKEN["0.10"]: said(answer)[1][TOKEN["0.10"]]}, VALUES)
    assert post("/scale/exchange", content, "alice")[0] == 200
    assert post("/scale/exchange", content, "bob")[0] == 400


@pytest.mark.parametrize(
    "expires",
    [
        datetime(2030, 1, 2, 3, 4, 5),
        datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC),
        datetime(2030, 1, 2, 5, 4, 5, 999_999, tzinfo=timezone(timedelta(hours=2))),
    ],
)
def test_a_cookie_expires_at_a_time_in_gmt(expires: datetime) -> None:
    context = CallContext(AuthContext.anonymous(), lambda _message: None)
    context.set_cookie_headers = []
    context.set_cookie("name", "dave", expires=expires, http_only=False)
    assert context.set_cookie_headers == ["name=dave; expires=Wed, 02 Jan 2030 03:04:05 GMT"]


@pytest.mark.parametrize("dialect", ["spec", "0.10"])
def test_methods_read_and_set_cookies(dialect: str) -> None:
    server = RpcServer(Known, KnownImpl(), dialect=dialect)
    client = make_sync_client(server, default_headers={"Cookie": "name=carol"})
    with http_connect(Known, client=client) as known:
        assert known.who() == "carol"
    named = body({"name": "dave"}, GOOD | {b"vgi_rpc.method": b"remember"}, pa.schema([("name", pa.utf8())]))
    answer = client.post(f"{client.prefix}/remember", content=named, headers={"Content-Type": ARROW})
    assert answer.headers["Set-Cookie"] == "name=dave; HttpOnly; Secure"
    nothing = body({}, GOOD | {b"vgi_rpc.method": b"forget"}, pa.schema([]))
    answer = client.post(f"{client.prefix}/forget", content=nothing, headers={"Content-Type": ARROW})
    assert answer.headers["Set-Cookie"] == 'name=""; expires=Thu, 01 Jan 1970 00:00:00 GMT; Max-Age=0; Path=/'
    # Over a pipe there is nowhere to put them.
    with serve_pipe(Known, KnownImpl()) as known, pytest.raises(RpcError, match="over HTTP"):
        known.forget()


def test_a_producers_answers_are_cut_where_they_are_full() -> None:
    client = make_sync_client(RpcServer(Service, ServiceImpl()), max_stream_response_bytes=1)
    posted: list[str] = []
    send = client.request
    client.request = lambda method, url, **rest: posted.append(url) or send(method, url, **rest)  # type: ignore[method-assign, func-returns-value]
    with http_connect(Service, client=client) as service:
        assert len(list(service.count(n=3))) == 3
    assert posted == ["/vgi/count/init", *["/vgi/count/exchange"] * 3]


def test_an_application_answers_in_the_web_server_that_mounts_it() -> None:
    server = RpcServer(Service, ServiceImpl())
    good = body({"a": 1.0}, GOOD)
    started: list[Any] = []
    environ = {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "/api",
        "PATH_INFO": "/vgi/add",
        "CONTENT_TYPE": ARROW,
        "CONTENT_LENGTH": str(len(good)),
        "wsgi.input": io.BytesIO(good),
    }
    (answer,) = make_wsgi_app(server)(environ, lambda *said: started.append(said))
    assert said(answer)[0].to_pydict() == {"result": [3.0]}
    assert started[0][0] == "200 OK"
    sent: list[dict[str, Any]] = []
    scope = {"type": "http", "method": "POST", "path": "/api/vgi/add", "root_path": "/api"}
    scope |= {"headers": [(b"content-type", ARROW.encode())]}
    pieces = iter([(good[:10], True), (good[10:], False)])

    async def receive() -> dict[str, Any]:
        piece, more = next(pieces)
        return {"type": "http.request", "body": piece, "more_body": more}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(make_asgi_app(server)(scope, receive, send))
    assert (sent[0]["status"], said(sent[1]["body"])[0].to_pydict()) == (200, {"result": [3.0]})


def test_a_request_is_sent_again_when_the_server_says_so() -> None:
    answers = [503, 503, 200]
    client = make_sync_client(RpcServer(Service, ServiceImpl()))
    send = client.request

    def flaky(method: str, url: str, **rest: Any) -> Any:
        answer = send(method, url, **rest)
        answer.status_code = answers.pop(0) if answers else 200
        if answer.status_code == 503:
            answer.content, answer.headers = b"come again", {"retry-after": "0"}
        return answer

    client.request = flaky  # type: ignore[method-assign]
    retry = HttpRetryConfig(max_retries=2, backoff_base=0.0)
    with http_connect(Service, client=client, retry=retry) as service:
        assert service.add(a=1.0) == 3.0
        answers[:] = [503, 503, 503]
        with pytest.raises(HttpTransientError) as raised:
            service.add(a=1.0)
    assert (raised.value.status_code, raised.value.body_preview) == (503, "come again")


def test_a_server_that_stops_finishes_its_calls(tmp_path: Path) -> None:
    entered, go_on = threading.Event(), threading.Event()

    class Slow(Protocol):
        def wait(self) -> int: ...

    class SlowImpl:
        def wait(self) -> int:
            entered.set()
            assert go_on.wait(30)
            return 7

    write_certificates(tmp_path)
    running = HttpServer(RpcServer(Slow, SlowImpl()), cert=tmp_path / "cert.pem", key=tmp_path / "key.pem")
    results: list[int] = []

    def call() -> None:
        with http_connect(Slow, running.url, fingerprint=running.fingerprint) as slow:
            results.append(slow.wait())

    caller = threading.Thread(target=call)
    caller.start()
    assert entered.wait(30)
    closer = threading.Thread(target=running.close)
    closer.start()
    go_on.set()
    closer.join()
    caller.join()
    assert results == [7]
    with http_connect(Slow, running.url, ca=str(tmp_path / "ca.pem")) as slow, pytest.raises(RpcError) as raised:
        slow.wait()
    assert raised.value.error_type == "TransportError"


def test_a_worker_serves_http_and_the_command_line_calls_it() -> None:
    worker = [sys.executable, "-m", "penstock", "vgi", "serve", "worker:ServiceImpl", "--http", "--describe"]
    worker += ["--metrics", "127.0.0.1:0"]
    pipe = subprocess.PIPE
    here = Path(__file__).parent
    with subprocess.Popen(worker, stdout=pipe, stderr=pipe, text=True, cwd=here) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            port = process.stdout.readline().strip().removeprefix("PORT:")
            found = re.search(r"metrics at http://127\.0\.0\.1:(\d+)/", process.stderr.readline())
            assert found is not None
            command = [sys.executable, "-m", "penstock", "vgi", "call", f"http://127.0.0.1:{port}", "add", "a=1.5"]
            done = subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
            assert json.loads(done.stdout) == {"result": 3.5}
            with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/metrics") as page:
                assert "penstock_vgi_calls_total 1\n" in page.read().decode()
            far = [*command[:5], "http://192.0.2.1:80", "add"]
            assert subprocess.run(far, capture_output=True, check=False).returncode == 2
        finally:
            process.terminate()
    assert process.returncode == 0
