"""A server over HTTP goes on, whatever its authorization server sends and its own functions raise."""

import base64
import http.client
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import pytest
from shelf import running_shelf

from penstock.vgi import (
    AuthContext,
    CallContext,
    OAuthResourceMetadata,
    RpcError,
    RpcServer,
    http_connect,
    jwt_authenticate,
)
from penstock.vgi.http import HttpServer, Request, bearer_authenticate_static
from penstock.vgi.http._fetch import FetchError, fetch_json
from penstock.vgi.http._jwt import _Keys
from penstock.vgi.http._pkce import BrowserLogin

THREADS = 8
"""The threads of an HttpServer: one call more finds out whether each failed call has ended one."""


class Service(Protocol):
    def who(self) -> str: ...
    def leave(self) -> None: ...


class ServiceImpl:
    def who(self, ctx: CallContext) -> str:
        return str(ctx.auth.principal)

    def leave(self) -> None:
        raise SystemExit(3)


GARBAGE = {
    "status": b"no HTTP at all\r\n\r\n",
    "chunk": b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{"a"',
    "header": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
    "redirect": b"HTTP/1.1 302 Found\r\nLocation: http://[\r\nContent-Length: 0\r\n\r\n",
    "depth": b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"[" * 100_000,
}


def answering(raw: bytes) -> Callable[[Any], bool]:
    def misbehave(handler: Any) -> bool:
        handler.wfile.write(raw)
        handler.close_connection = True
        return True

    return misbehave


@pytest.mark.parametrize("raw", GARBAGE.values(), ids=GARBAGE.keys())
def test_an_answer_that_is_no_document_is_an_error_of_fetching(raw: bytes) -> None:
    with running_shelf() as shelf:
        shelf.misbehave = answering(raw)
        with pytest.raises(FetchError, match=r"the (?:answer|response)") as raised:
            fetch_json(f"{shelf.url}/keys")
    assert raised.value.status is None


def test_an_address_that_is_no_url_is_an_error_of_fetching() -> None:
    with pytest.raises(FetchError, match="no URL"):
        fetch_json("http://[")


def get(running: HttpServer, path: str) -> int:
    """Open a page as a browser does."""
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=30)
    try:
        connection.request("GET", path, headers={"Accept": "text/html"})
        return connection.getresponse().status
    finally:
        connection.close()


def refuse(_request: object) -> AuthContext:
    raise SystemExit(3)


@pytest.mark.parametrize("path", ["/vgi", "/vgi/_oauth/callback"])
def test_a_page_that_fails_is_a_500_and_ends_no_thread(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    def fail(self: BrowserLogin, request: object) -> None:  # noqa: ARG001
        raise RuntimeError("the login is broken")

    monkeypatch.setattr(BrowserLogin, "send", fail)
    monkeypatch.setattr(BrowserLogin, "callback", fail)
    metadata = OAuthResourceMetadata("https://api.example", ("http://127.0.0.1:9",), client_id="app")
    authenticate = bearer_authenticate_static(tokens={"s3cret": AuthContext("key", True, "alice")})
    server = RpcServer(Service, ServiceImpl())
    with HttpServer(server, authenticate=authenticate, oauth_resource_metadata=metadata) as running:
        assert [get(running, path) for _ in range(THREADS)] == [500] * THREADS
        with http_connect(Service, running.url, headers={"Authorization": "Bearer s3cret"}) as service:
            assert service.who() == "alice"
    assert "the login is broken" in caplog.text


def test_a_method_or_an_authenticator_that_exits_ends_no_thread(caplog: pytest.LogCaptureFixture) -> None:
    with (
        HttpServer(RpcServer(Service, ServiceImpl())) as running,
        http_connect(Service, running.url) as service,
    ):
        for _ in range(THREADS):
            with pytest.raises(RpcError) as raised:
                service.leave()
            assert raised.value.error_type == "SystemExit"
        assert service.who() == "None"
    with HttpServer(RpcServer(Service, ServiceImpl()), authenticate=refuse) as running:
        assert [get(running, "/vgi") for _ in range(THREADS + 1)] == [500] * (THREADS + 1)
    assert "a call could not be answered" in caplog.text


ENDLESS = "x." + base64.urlsafe_b64encode(b'{"exp": Infinity}').decode() + ".x"


@pytest.mark.parametrize("name", ["access_token", "id_token"])
def test_a_token_that_lasts_infinitely_is_kept_for_an_hour(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    answer = {name: ENDLESS, "expires_in": float("inf")}
    monkeypatch.setattr("penstock.vgi.http._pkce.fetch_json", lambda _url, _form: answer)
    metadata = OAuthResourceMetadata(
        "https://api.example", ("https://login.example",), client_id="app", use_id_token_as_bearer=name == "id_token"
    )
    login = BrowserLogin(metadata, "/vgi", b"k" * 16)
    assert login._token("https://login.example/token", "a-code", "a-verifier") == (ENDLESS, 3600)


def test_keys_that_cannot_be_fetched_are_not_fetched_for_each_token(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def fetch(url: str) -> dict[str, Any]:
        asked.append(url)
        raise FetchError("the issuer is away")

    monkeypatch.setattr("penstock.vgi.http._jwt.fetch_json", fetch)
    authenticate = jwt_authenticate(issuer="https://login.example", audience="calculator")
    request = Request("POST", "/vgi/who", "", [("Authorization", "Bearer a.b.c")], "127.0.0.1")
    for _ in range(3):
        with pytest.raises(FetchError, match="the issuer is away"):
            authenticate(request)
    assert len(asked) == 1
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 5)
    with pytest.raises(FetchError, match="the issuer is away"):
        authenticate(request)
    assert len(asked) == 2


def test_keys_that_cannot_be_read_are_an_error_of_fetching(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.vgi.http._jwt.fetch_json", lambda _url: {"keys": [{"kty": "RSA"}]})
    at = "https://login.example/keys"
    authenticate = jwt_authenticate(issuer="https://login.example", audience="calculator", jwks_uri=at)
    with pytest.raises(FetchError, match="cannot be read"):
        authenticate(Request("POST", "/vgi/who", "", [("Authorization", "Bearer a.b.c")], "127.0.0.1"))


def test_a_token_with_a_known_key_does_not_wait_for_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched, entered, go_on = [False], threading.Event(), threading.Event()

    def fetch(_url: str) -> dict[str, Any]:
        if fetched[0]:
            entered.set()
            assert go_on.wait(30)
        fetched[0] = True
        return {}

    monkeypatch.setattr("penstock.vgi.http._jwt.fetch_json", fetch)
    keys = _Keys("https://login.example", "https://login.example/keys", lambda _said: object())
    known = keys.get()
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 11)
    other = threading.Thread(target=keys.get, args=(known,))
    other.start()
    try:
        assert entered.wait(30)
        assert keys.get() is known
    finally:
        go_on.set()
        other.join()
    assert keys.get() is not known


def test_a_login_pauses_from_the_end_of_a_failed_request_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    now = [time.monotonic()]

    def fetch(url: str) -> dict[str, Any]:
        asked.append(url)
        now[0] += 10
        raise FetchError("no answer within 10 s")

    monkeypatch.setattr("penstock.vgi.http._pkce.fetch_json", fetch)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    metadata = OAuthResourceMetadata("https://api.example", ("https://login.example",), client_id="app")
    login = BrowserLogin(metadata, "/vgi", b"k" * 16)
    assert [login._discover() for _ in range(3)] == [None] * 3
    assert len(asked) == 1
    now[0] += 10
    assert login._discover() is None
    assert len(asked) == 2
