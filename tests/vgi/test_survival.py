"""A server over HTTP goes on, whatever its authorization server sends and its own functions raise."""

from collections.abc import Callable
from typing import Any

import pytest
from shelf import running_shelf

from penstock.vgi.http._fetch import FetchError, fetch_json

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
        with pytest.raises(FetchError, match="the answer") as raised:
            fetch_json(f"{shelf.url}/keys")
    assert raised.value.status is None


def test_an_address_that_is_no_url_is_an_error_of_fetching() -> None:
    with pytest.raises(FetchError, match="no URL"):
        fetch_json("http://[")
