"""Any PIMP buffer, met from outside by plain HTTP (`PENSTOCK_PIMP=URL`)."""

import base64
import gzip
import hashlib
import json
import threading
import time
import uuid

import httpx
import pytest
from pimp_http import Writer, bearer, envelope, load, metadata, speak

JOB = "550e8400-e29b-41d4-a716-446655440000"
JSON = {"Content-Type": "application/json"}


def envelopes(answer: httpx.Response) -> list[dict]:
    assert answer.status_code == 200, answer.text
    return answer.json()["chunks"]


@pytest.fixture
def writer(client) -> Writer:
    return Writer(client)


def test_every_write_that_is_right_is_stored_as_the_vectors_say(client):
    for vector in load("writes"):
        job = Writer(client)
        body = vector["body"].replace(JOB, job.job)
        path = f"/pimp/{job.job}/chunks"
        answer = client.post(path, headers=job.headers | JSON, content=body.encode("utf-8", "surrogatepass"))
        stored = json.loads(json.dumps(vector["stored"]).replace(JOB, job.job))
        assert answer.status_code == 201, (vector["name"], answer.text)
        assert answer.json()["written"] == len(stored), vector["name"]
        assert answer.json().get("duplicates", 0) == vector["duplicates"], vector["name"]
        expected = sorted(stored, key=lambda chunk: chunk["index"])
        assert envelopes(job.poll()) == expected, vector["name"]
        again = client.post(path, headers=job.headers | JSON, content=body.encode())
        assert (again.status_code, again.json()["written"]) == (200, 0), "silently ignored (section 7)"


def test_every_write_that_is_wrong_has_its_status_and_leaves_nothing(client, writer):
    for vector in load("writes-invalid"):
        data = bytes.fromhex(vector["hex"]) if "hex" in vector else vector["body"].encode()
        data = data.replace(JOB.encode(), writer.job.encode())
        answer = client.post(f"/pimp/{writer.job}/chunks", headers=writer.headers | JSON, content=data)
        assert answer.status_code == vector["status"], (vector["name"], answer.text)
        assert answer.json()["error"], vector["name"]
    assert envelopes(writer.poll()) == []


@pytest.mark.parametrize("vector", load("jobs"), ids=lambda vector: vector["name"])
def test_jobs_answer_as_the_dialogues_say(client, vector):
    speak(client, vector)


def test_ids_and_queries_that_are_none_are_refused(client, writer):
    for name in ("x", JOB.upper(), JOB.replace("-", ""), "550e8400-e29b-11d4-a716-446655440000", "%2e%2e"):
        assert client.get(f"/pimp/{name}").status_code in (400, 404), name
    for query in ("from=-1", "from=", "from=1.0", "from=x", "limit=0", "limit=x", "wait=soon", "from=1&from=2"):
        assert client.get(f"/pimp/{writer.job}?{query}").status_code == 400, query
    unknown = str(uuid.uuid4())
    for path in ("", "/status", "/raw"):
        assert client.get(f"/pimp/{unknown}{path}", headers=bearer("w")).status_code == 404
    assert client.post(f"/pimp/{unknown}/chunks", headers=bearer("w") | JSON, content=b"{}").status_code == 404


def test_bodies_are_json_and_settings_have_bounds(client, writer):
    chunks = json.dumps({"chunks": [envelope(writer.job, 0, metadata("text/plain"))]})
    path = f"/pimp/{writer.job}/chunks"
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx"):
        answer = client.post(path, headers=writer.headers | {"Content-Type": kind}, content=chunks)
        assert answer.status_code == 415, kind
    kind = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert client.post(path, headers=writer.headers | kind, content=chunks).status_code == 201
    for body in (
        '{"ttlMs": 0}',
        '{"ttlMs": 300001}',
        '{"ttlMs": "1"}',
        '{"readKey": ""}',
        "[]",
        "{",
        '{"ttlMs": 1, "ttlMs": 1}',
    ):
        answer = client.put(f"/pimp/{uuid.uuid4()}", headers=bearer("w") | JSON, content=body)
        assert answer.status_code == 400, body


def test_what_is_too_large_is_413_and_says_what(writer):
    writer.begin("text/plain")
    value = "x" * 262_144
    assert writer.post([envelope(writer.job, 1, value)]).status_code == 201
    for chunk in (
        envelope(writer.job, 2, value + "x"),
        envelope(writer.job, 4_096, ""),
        envelope(writer.job, 4_095, ""),
    ):
        answer = writer.post([chunk])
        assert (answer.status_code, answer.json()["code"]) == (413, "TOO_LARGE"), answer.text
    for first in range(2, 202, 50):
        answer = writer.post([envelope(writer.job, index, value) for index in range(first, min(first + 50, 199))])
        assert answer.status_code == 201, answer.text
    assert writer.post([envelope(writer.job, 200, value), envelope(writer.job, 201, value)]).status_code == 413
    last = envelope(writer.job, 4_095, "x" * 1_000, done=True)
    assert writer.post([last]).status_code == 201, "for a final chunk there is room"


def test_bodies_that_are_floods_or_deep_are_refused(writer, client):
    tiny = json.dumps(envelope(writer.job, 1, ""))
    deep = "[" * 1_000_000
    bodies = {
        "a million empty chunks": '{"chunks":[' + "{}," * 1_000_000 + "{}]}",
        "too many chunks": '{"chunks":[' + f"{tiny}," * 4_097 + tiny + "]}",
        "deep where it means something": '{"chunks":' + deep,
        "deep where nobody looks": '{"other":' + deep + ',"chunks":[]}',
    }
    for name, body in bodies.items():
        path = f"/pimp/{writer.job}/chunks"
        answer = client.post(path, headers=writer.headers | JSON, content=body)
        assert answer.status_code in (400, 413), name
    assert envelopes(writer.poll()) == []


def test_a_poll_that_waits_is_answered_by_a_write(writer, url):
    found = []

    def wait() -> None:
        found.append(httpx.get(f"{url}/pimp/{writer.job}?wait=30000", timeout=60).json())

    waiting = threading.Thread(target=wait)
    waiting.start()
    writer.begin("text/plain")
    waiting.join()
    assert [chunk["index"] for chunk in found[0]["chunks"]] == [0]
    writer.end("x")
    assert envelopes(writer.poll(start=2, wait=30_000)) == [], "past the done chunk it is not held open"
    assert writer.poll(start=0, limit=1).json()["nextIndex"] == 1


def test_events_are_the_chunks_without_a_gap_and_resume(client, writer):
    writer.begin("text/plain")
    writer.write("one\ntwo")
    writer.end("three")
    accept = {"Accept": "text/event-stream"}

    def events(**headers: str) -> list[tuple[int, dict]]:
        found, index = [], -1
        with client.stream("GET", f"/pimp/{writer.job}", headers=accept | headers) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            for line in stream.iter_lines():
                name, _, value = line.partition(": ")
                if name == "id":
                    index = int(value)
                if name == "data":
                    found.append((index, json.loads(value)))
        return found

    assert [(index, event["index"]) for index, event in events()] == [(0, 0), (1, 1), (2, 2)]
    assert [index for index, _ in events(**{"Last-Event-ID": "1"})] == [2]
    past = client.get(f"/pimp/{writer.job}", headers=accept | {"Last-Event-ID": "2"})
    assert past.status_code == 204


def test_raw_is_the_payload_with_ranges_and_a_tag(client):
    text = b"a payload " * 1_000
    packed = gzip.compress(text)
    for data, more in ((text, {}), (packed, {"compression": "gzip"})):
        job = Writer(client)
        job.begin("application/octet-stream", "base64", contentLength=len(data), **more)
        raw = f"/pimp/{job.job}/raw"
        assert client.get(raw).status_code == 409, "it is not completed"
        encoded = base64.b64encode(data).decode()
        job.write(encoded[:40])
        job.end(encoded[40:])
        plain = {"Accept-Encoding": "identity"}
        whole = client.get(raw, headers=plain)
        assert (whole.status_code, whole.content) == (200, text)
        assert client.get(raw, headers={"Accept-Encoding": "gzip"}).content == text
        tag = whole.headers["etag"]
        part = client.get(raw, headers=plain | {"Range": "bytes=10-19", "If-Range": tag})
        assert (part.status_code, part.content) == (206, text[10:20])
        assert part.headers["content-range"] == f"bytes 10-19/{len(text)}"
        assert client.get(raw, headers=plain | {"Range": f"bytes={len(text)}-"}).status_code == 416
        assert client.get(raw, headers=plain | {"If-None-Match": tag}).status_code == 304
        status = client.get(f"/pimp/{job.job}/status").json()
        assert status["sha256"] == hashlib.sha256(data).hexdigest()
        assert status["createdAt"] < status["expiresAt"] <= status["createdAt"] + 300_000


def test_a_job_that_has_expired_is_410_and_then_unknown(client):
    job = Writer(client, ttl=400)
    job.begin("text/plain")
    seen = []
    while not seen or seen[-1] != 404:
        status = job.poll().status_code
        if [status] != seen[-1:]:
            seen.append(status)
        time.sleep(0.02)
    assert seen == [200, 410, 404]


def test_writes_at_once_lose_nothing(url, writer):
    """Eight writers, each of which tries every chunk: each chunk is written once, whoever was first."""
    written = []

    def write(number: int) -> None:
        with httpx.Client(base_url=url, timeout=60) as client:
            for index in range(1, 41):
                body = json.dumps({"chunks": [envelope(writer.job, index, str(number))]})
                answer = client.post(f"/pimp/{writer.job}/chunks", headers=writer.headers | JSON, content=body)
                written.append(answer.json()["written"])

    threads = [threading.Thread(target=write, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(written) == 40
    assert [chunk["index"] for chunk in envelopes(writer.poll())] == list(range(1, 41))
