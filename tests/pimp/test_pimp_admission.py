"""Connections of a buffer: what follows a refused request, limits of the command line, chunk 0 of a silent job."""

import http.client
import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from pimp_http import bearer, envelope, metadata

from penstock.pimp import Buffer, Job, Limits, Sender, Trigger, new_job_id


def _short(size: int = 4_096) -> bytes:
    return b"x" * size


def _asked(connection: http.client.HTTPConnection, method: str, path: str, body: bytes, **headers: str) -> Any:
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    answer.read()
    return answer


_REFUSED = [
    (401, "POST", "/pimp/{id}/chunks", {"Content-Type": "application/json"}),
    (401, "POST", "/pimp/{id}/chunks", {"Content-Type": "application/json", "Authorization": "Bearer wrong"}),
    (404, "POST", "/pimp/{other}/chunks", {"Content-Type": "application/json", "Authorization": "Bearer key"}),
    (404, "POST", "/nothing", {}),
    (405, "POST", "/pimp/{id}", {"Authorization": "Bearer key"}),
    (405, "PUT", "/pimp/{id}/chunks", {"Authorization": "Bearer key"}),
    (400, "POST", "/pimp/no-uuid/chunks", {"Content-Type": "application/json", "Authorization": "Bearer key"}),
    (415, "POST", "/pimp/{id}/chunks", {"Content-Type": "text/plain", "Authorization": "Bearer key"}),
    (400, "POST", "/pimp/{id}/chunks", {"Content-Type": "application/json", "Authorization": "Bearer key"}),
]


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize(("status", "method", "path", "headers"), _REFUSED)
def test_after_a_refusal_the_connection_is_usable_or_says_that_it_ends(
    tmp_path: Path, tls: bool, status: int, method: str, path: str, headers: dict[str, str]
) -> None:
    with Buffer(behind_proxy=not tls, state_dir=tmp_path) as buffer:
        connection: http.client.HTTPConnection = http.client.HTTPConnection(buffer.address, timeout=30)
        if tls:
            context = ssl.create_default_context(cafile=str(tmp_path / "certificate" / "ca.pem"))
            connection = http.client.HTTPSConnection(buffer.address, timeout=30, context=context)
        job = new_job_id()
        assert _asked(connection, "PUT", f"/pimp/{job}", b"", Authorization="Bearer key").status == 201
        path = path.format(id=job, other=new_job_id())
        answer = _asked(connection, method, path, _short(), **headers)
        assert (answer.status, answer.getheader("connection")) == (status, None)
        # The same socket, for the client was not told to make another one.
        connection.auto_open = 0
        assert _asked(connection, "GET", f"/pimp/{job}", b"").status == 200
        answer = _asked(connection, method, path, _short(1 << 20), **headers)
        assert answer.status == status
        # A body that was read to its end leaves nothing behind; else the client is told.
        if answer.getheader("connection") != "close":
            assert _asked(connection, "GET", f"/pimp/{job}", b"").status == 200
        connection.close()


def test_a_body_beyond_the_limit_is_413_and_the_client_reads_it() -> None:
    with Buffer(behind_proxy=True) as buffer:
        job = Job.create(buffer.url)
        connection = http.client.HTTPConnection(buffer.address, timeout=30)
        # All of it is sent before the answer is read.
        connection.putrequest("POST", f"/pimp/{job.id}/chunks")
        for name, value in {**bearer(job.key), "Content-Type": "application/json"}.items():
            connection.putheader(name, value)
        connection.putheader("Content-Length", str(65 << 20))
        connection.endheaders()
        connection.send(b"x" * (4 << 20))
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("connection")) == (413, "close")


def test_a_trigger_that_refuses_leaves_its_connection_usable() -> None:
    trigger = Trigger(lambda *_: None, allowed_hosts=["127.0.0.1"], token="secret", max_body=1 << 10)  # noqa: S106
    with trigger, trigger.serve(behind_proxy=True) as server:
        connection = http.client.HTTPConnection(server.address, timeout=30)
        json_type = {"Content-Type": "application/json"}
        for status, method, size, headers in [
            (401, "POST", 512, json_type),
            (405, "PUT", 512, json_type),
            (415, "POST", 512, {"Content-Type": "text/plain", "Authorization": "Bearer secret"}),
            (413, "POST", 32 << 10, json_type),
        ]:
            assert _asked(connection, method, "/", _short(size), **headers).status == status
            connection.auto_open = 0


def test_tls_ends_with_close_notify(tmp_path: Path) -> None:
    with Buffer(state_dir=tmp_path) as buffer:
        context = ssl.create_default_context(cafile=str(tmp_path / "certificate" / "ca.pem"))
        # Python gives b"" after close_notify, and raises SSLEOFError where the end is bare.
        context.options &= ~getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
        host, _, port = buffer.address.rpartition(":")
        with (
            socket.create_connection((host, int(port)), timeout=30) as plain,
            context.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False) as secure,
        ):
            secure.sendall(b"POST /pimp/x HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
            data = b""
            while more := secure.recv(1 << 16):
                data += more
    assert b"connection: close" in data.lower()


def test_the_command_line_sets_how_long_and_how_large_jobs_are(serve: Any) -> None:
    options = ("--ttl", "2", "--max-job-bytes", str(200 << 10), "--max-chunks", "4")
    with serve("--listen", "127.0.0.1:0", "--store", "memory:", "--behind-proxy", *options) as served:
        job = Job.create(served.url)
        status = job.status()
        assert status is not None
        assert status.expires_at - status.created_at == 2_000

        def post(*envelopes: dict[str, object]) -> int:
            request = urllib.request.Request(  # noqa: S310
                f"{job.url}/chunks",
                json.dumps({"chunks": envelopes}).encode(),
                {**bearer(job.key), "Content-Type": "application/json"},
            )
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
                    return int(answer.status)
            except urllib.error.HTTPError as error:
                return error.code

        assert post(envelope(job.id, 0, metadata("text/plain"))) == 201
        assert post(envelope(job.id, 1, "x" * (150 << 10))) == 413
        assert post(envelope(job.id, 1, "x")) == 201
        # The last of four is for a final chunk.
        assert post(envelope(job.id, 3, "x")) == 413
        assert post(envelope(job.id, 4, "x", done=True)) == 413
        assert post(envelope(job.id, 3, "x", done=True)) == 201
        deadline = time.monotonic() + 30
        while _poll(job) == 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert _poll(job) in {404, 410}


def _poll(job: Job) -> int:
    try:
        request = urllib.request.Request(job.url, headers=bearer(job.key))  # noqa: S310
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_limits_of_the_class_are_those_of_the_command_line() -> None:
    with Buffer(behind_proxy=True, limits=Limits(ttl_ms=1_000, chunks=3)) as buffer:
        status = Job.create(buffer.url).status()
        assert status is not None
        assert status.expires_at - status.created_at == 1_000


def test_an_address_has_its_share_of_a_buffer() -> None:
    options = {"max_connections": 8, "max_connections_per_address": 1, "metrics": "127.0.0.1:0"}
    with Buffer(behind_proxy=True, **options) as buffer:
        host, _, port = buffer.address.rpartition(":")
        first = http.client.HTTPConnection(buffer.address, timeout=30)
        assert _asked(first, "GET", f"/pimp/{new_job_id()}", b"").status == 404
        with socket.create_connection((host, int(port)), timeout=30) as second:
            assert second.recv(1) == b""
        other = http.client.HTTPConnection(buffer.address, timeout=30, source_address=("127.0.0.2", 0))
        assert _asked(other, "GET", f"/pimp/{new_job_id()}", b"").status == 404
        with urllib.request.urlopen(f"http://{buffer.metrics_address}/metrics", timeout=20) as response:
            text = response.read().decode()
    assert 'penstock_pimp_connections_not_served_total{reason="address"} 1' in text


@pytest.mark.parametrize(
    ("options", "content_type", "encoding"),
    [
        ({}, "application/octet-stream", "base64"),
        ({"content_type": "application/zip"}, "application/zip", "base64"),
        ({"content_type": "text/csv"}, "text/csv", "identity"),
        ({"content_type": "text/csv", "gzip": True}, "text/csv", "base64"),
        ({"encoding": "identity"}, "application/octet-stream", "identity"),
    ],
)
def test_chunk_0_is_there_before_anything_was_sent(
    buffer: Buffer, options: dict[str, Any], content_type: str, encoding: str
) -> None:
    job = Job.create(buffer.url)
    sender = Sender(job, meta={"n": 1}, **options)
    request = urllib.request.Request(f"{job.url}?wait=20000", headers=bearer(job.key))  # noqa: S310
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        chunks = json.load(answer)["chunks"]
    assert [chunk["index"] for chunk in chunks] == [0]
    said = json.loads(chunks[0]["value"])
    assert (said["contentType"], said["contentEncoding"], said["meta"]) == (content_type, encoding, {"n": 1})
    # What comes later is read as chunk 0 says.
    sender.send("grüße")
    sender.finish()
    assert job.consumer().read() == "grüße".encode()


def test_a_text_that_is_sent_at_once_is_text(buffer: Buffer) -> None:
    job = Job.create(buffer.url)
    with Sender(job) as sender:
        sender.send("hello")
    consumer = job.consumer()
    assert consumer.read() == b"hello"
    assert consumer.metadata.content_encoding == "identity"
