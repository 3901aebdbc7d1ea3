"""Triggers: who asks, where chunks may go, and what becomes of a job."""

import asyncio
import io
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults

import pytest

from penstock.aio import pimp as aio_pimp
from penstock.errors import PimpError
from penstock.pimp import Buffer, Job, Sender, Trigger, new_job_id

HOSTS = ["127.0.0.1"]


def pages(sender: Sender, payload: dict[str, Any]) -> None:
    """Write what is asked for, or fail."""
    for page in payload["pages"]:
        sender.send(f"page {page}\n")


def ask(trigger: Trigger, body: object, **fields: str) -> tuple[int, Any]:
    """Ask by WSGI."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    environ: dict[str, Any] = {"REQUEST_METHOD": "POST", "CONTENT_TYPE": "application/json"}
    environ |= {"CONTENT_LENGTH": str(len(data)), "wsgi.input": io.BytesIO(data)} | fields
    setup_testing_defaults(environ)
    told: list[Any] = []
    answer = b"".join(trigger(environ, lambda status, headers: told.extend([status, headers])))
    assert ("Content-Length", str(len(answer))) in told[1]
    return int(told[0].split()[0]), json.loads(answer)


@pytest.fixture
def trigger() -> Iterator[Trigger]:
    """Give a trigger that writes pages to this machine."""
    with Trigger(pages, allowed_hosts=HOSTS, sender={"content_type": "text/plain"}) as trigger:
        yield trigger


def test_a_request_is_answered_at_once_and_its_job_is_made(buffer: Buffer, trigger: Trigger) -> None:
    job = Job.create(buffer.url)
    for _ in range(2):
        assert ask(trigger, job.request({"pages": [1, 2]})) == (202, {"jobId": job.id})
    assert job.consumer().read() == b"page 1\npage 2\n"
    failing = Job.create(buffer.url)
    assert ask(trigger, failing.request({"none": 1}))[0] == 202
    with pytest.raises(PimpError, match="pages") as failed:
        failing.consumer().read()
    assert failed.value.code == "FAILED"


def test_options_of_a_trigger_are_checked_before_any_request() -> None:
    wrong: list[dict[str, Any]] = [
        {"sender": {"content_type": "none"}},
        {"sender": {"chunk_bytes": 0}},
        {"sender": {"encoding": "hex"}},
        {"allowed_hosts": "127.0.0.1"},
    ]
    for kind in (Trigger, aio_pimp.Trigger):
        for options in wrong:
            with pytest.raises(PimpError) as refused:
                kind(pages, **({"allowed_hosts": HOSTS} | options))
            assert refused.value.code == "MISUSE", options
        with pytest.raises(TypeError, match="content_typ"):
            kind(pages, allowed_hosts=HOSTS, sender={"content_typ": "text/plain"})
        with pytest.raises(TypeError, match="ca_file"):
            kind(pages, allowed_hosts=HOSTS, ca_file="x")
    with Trigger(pages, allowed_hosts=HOSTS) as trigger:
        for length in ("-1", "-5"):
            assert ask(trigger, b"{}", CONTENT_LENGTH=length)[0] == 400


def test_payloads_that_cannot_be_read_end_no_trigger(buffer: Buffer) -> None:
    with Trigger(pages, allowed_hosts=HOSTS) as trigger, trigger.serve(behind_proxy=True) as server:
        job = Job.create(buffer.url)
        request = job.request({"pages": []}).decode()
        for payload in ('{"pages": ' + "9" * 5_000 + "}", '{"pages": ' + "[" * 100_000 + "]" * 100_000 + "}"):
            body = request.replace('{"pages": []}', payload).encode()
            status, answer = ask(trigger, body)
            assert (status, answer["code"]) == (400, "MALFORMED")
            asked = urllib.request.Request(server.url, body, {"Content-Type": "application/json"})  # noqa: S310
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(asked, timeout=30)  # noqa: S310
            assert refused.value.code == 400
        job.trigger(server.url, {"pages": [1]})
        assert job.consumer().read() == b"page 1\n"


def test_a_job_that_its_buffer_did_not_know_may_be_asked_for_again(buffer: Buffer) -> None:
    job = Job(f"{buffer.url}/pimp/{new_job_id()}", key="key")
    with Trigger(pages, allowed_hosts=HOSTS, workers=1) as trigger:
        assert ask(trigger, job.request({"pages": [1]}))[0] == 202
    trigger_again = trigger
    job.ensure()
    with trigger_again:
        assert ask(trigger_again, job.request({"pages": [1]}))[0] == 202
        assert job.consumer().read() == b"page 1\n"


def test_chunks_go_nowhere_but_to_allowed_hosts(buffer: Buffer, trigger: Trigger) -> None:
    job = Job.create(buffer.url)
    request = json.loads(job.request({"pages": []}))
    path = f"/pimp/{job.id}/chunks"
    forbidden = [
        f"http://169.254.169.254{path}",
        f"https://169.254.169.254{path}",
        f"https://buffer.example{path}",
        f"http://127.0.0.1@evil.example{path}",
        f"https://127.0.0.1.evil.example{path}",
        f"https://evil.example#@127.0.0.1{path}",
        f"http://localhost{path}",
        f"http://[::1]{path}",
        f"file://127.0.0.1{path}",
        f"gopher://127.0.0.1{path}",
        "http://127.0.0.1/",
        "http://127.0.0.1/admin?x=" + path,
        "",
    ]
    for url in forbidden:
        status, answer = ask(trigger, request | {"writeUrl": url})
        assert (status, answer["code"]) == (403, "FORBIDDEN"), url
        assert job.key is not None
        assert job.key not in json.dumps(answer)
    other = f"{buffer.url}/pimp/{new_job_id()}/chunks"
    malformed = [
        b"",
        b"[]",
        b"\xff",
        b'{"jobId":' * 10_000,
        request | {"jobId": "none"},
        request | {"writeKey": ""},
        request | {"payload": [1]},
        request | {"writeUrl": other},
        {key: value for key, value in request.items() if key != "payload"},
    ]
    for body in malformed:
        assert ask(trigger, body)[0] == 400, body
    assert ask(trigger, request, REQUEST_METHOD="GET")[0] == 405
    assert ask(trigger, request, CONTENT_TYPE="text/plain")[0] == 415
    assert ask(trigger, b" " * (1 << 20) + b" ")[0] == 413
    assert job.status().state == "CREATED"


def test_a_token_is_asked_for_and_too_many_jobs_are_refused(buffer: Buffer) -> None:
    go, running = threading.Event(), threading.Event()

    def wait(_sender: Sender, _payload: Any) -> None:
        running.set()
        go.wait(30)

    with Trigger(wait, allowed_hosts=HOSTS, token="secret", workers=1, queue=1) as trigger:  # noqa: S106
        first, second = Job.create(buffer.url), Job.create(buffer.url)
        for given in ("", "Bearer wrong", "Basic secret", "Bearer"):
            assert ask(trigger, first.request({}), HTTP_AUTHORIZATION=given)[0] == 401
        token = {"HTTP_AUTHORIZATION": "Bearer secret"}
        assert ask(trigger, first.request({}), **token)[0] == 202
        assert running.wait(30)
        assert ask(trigger, second.request({}), **token)[0] == 503
        go.set()
        assert first.consumer().read() == b""
    assert trigger.handle("POST", b"{}", authorization="Bearer secret").status == 400


def test_requests_that_come_together_share_the_workers(buffer: Buffer, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [Job.create(buffer.url) for _ in range(4)]
    running: list[int] = []
    most: list[int] = []
    lock, together = threading.Lock(), threading.Barrier(len(jobs))
    made = ThreadPoolExecutor.__init__

    def slow(self: ThreadPoolExecutor, *arguments: Any, **named: Any) -> None:
        # Where more than one request finds no pool, each makes its own.
        time.sleep(0.1)
        made(self, *arguments, **named)

    def count(_sender: Sender, _payload: Any) -> None:
        with lock:
            running.append(1)
            most.append(len(running))
        time.sleep(0.05)
        with lock:
            running.pop()

    def request(job: Job) -> None:
        together.wait(30)
        assert trigger.handle("POST", job.request({})).status == 202

    monkeypatch.setattr(ThreadPoolExecutor, "__init__", slow)
    with Trigger(count, allowed_hosts=HOSTS, workers=1) as trigger:
        threads = [threading.Thread(target=request, args=(job,)) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (len(most), max(most), running) == (4, 1, [])
    assert [job.status().state for job in jobs] == ["COMPLETED"] * 4


def test_a_function_that_is_called_with_the_request_makes_the_job_itself(buffer: Buffer, trigger: Trigger) -> None:
    job = Job.create(buffer.url)
    trigger.run(json.loads(job.request({"pages": [3]})))
    assert job.status().state == "COMPLETED"
    with pytest.raises(PimpError, match="allowed_hosts"):
        trigger.run({"jobId": job.id, "writeUrl": f"https://evil.example/{job.id}", "writeKey": "k", "payload": {}})


def test_a_cancelled_job_ends_in_the_function(buffer: Buffer) -> None:
    job, ended = Job.create(buffer.url), threading.Event()

    def endless(sender: Sender, _payload: Any) -> None:
        try:
            while True:
                sender.send("word ")
                sender.flush()
        except PimpError as error:
            if error.code == "CANCELLED":
                ended.set()
            raise

    with Trigger(endless, allowed_hosts=HOSTS) as trigger:
        assert ask(trigger, job.request({}))[0] == 202
        assert job.consumer().receive()
        job.cancel()
        assert ended.wait(30)


def test_a_server_of_ours_does_the_same(buffer: Buffer, trigger: Trigger, tmp_path: Path) -> None:
    with trigger.serve(state_dir=tmp_path) as server:
        assert server.url.startswith("https://")
        job = Job.create(buffer.url)
        job.trigger(server.url, {"pages": [1]}, fingerprint=server.fingerprint)
        assert job.consumer().read() == b"page 1\n"
        with pytest.raises(PimpError) as forbidden:
            Job(f"https://evil.example/pimp/{job.id}", key="k").trigger(
                server.url, {}, fingerprint=server.fingerprint, timeout=30
            )
        assert "403" in str(forbidden.value)
        with pytest.raises(PimpError) as large:
            job.trigger(server.url, {"pages": "x" * (2 << 20)}, fingerprint=server.fingerprint, timeout=30)
        assert large.value.kind in {"limit", "io"}
    with pytest.raises(PimpError):
        job.trigger(server.url, {}, fingerprint=server.fingerprint, timeout=30)


def test_asgi_does_the_same(buffer: Buffer, trigger: Trigger) -> None:
    async def words(sender: aio_pimp.Sender, payload: dict[str, Any]) -> None:
        await sender.send(payload["word"])

    async def call(application: Any, body: bytes, method: str = "POST") -> tuple[int, Any]:
        pieces = [{"type": "http.request", "body": body[:5], "more_body": True}]
        pieces.append({"type": "http.request", "body": body[5:]})
        told: list[Any] = []

        async def receive() -> Any:
            return pieces.pop(0)

        async def send(message: Any) -> None:
            told.append(message)

        headers = [(b"content-type", b"application/json; charset=utf-8")]
        await application({"type": "http", "method": method, "headers": headers}, receive, send)
        return told[0]["status"], json.loads(told[1]["body"])

    async def main() -> None:
        job = Job.create(buffer.url)
        assert await call(trigger.asgi, job.request({"pages": [1]})) == (202, {"jobId": job.id})
        assert await asyncio.to_thread(job.consumer().read) == b"page 1\n"
        async with aio_pimp.Trigger(words, allowed_hosts=HOSTS) as own:
            mine = await aio_pimp.Job.create(buffer.url)
            assert await call(own, mine.request({"word": "hello"})) == (202, {"jobId": mine.id})
            assert await mine.consumer().read() == b"hello"
            assert (await call(own, b"{}"))[0] == 400
            assert (await call(own, b" " * (1 << 21)))[0] == 413
            assert (await call(own, b"{}", "PUT"))[0] == 405

    asyncio.run(main())
