"""The module `pimp.js` in Node: the vectors, and buffers that are evil."""

import base64
import gzip
import json
import subprocess
import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from pimp_http import Writer, envelope, metadata

VECTORS = Path(__file__).parents[1] / "vectors" / "pimp" / "payloads.json"
READER = Path(__file__).with_name("reader.mjs")
QUICK = {"wait": 0, "pollInterval": 10, "maxPollInterval": 20, "stallTimeout": 500}


@pytest.fixture
def read(node, client, tmp_path):
    """Read jobs with the module as the buffer serves it."""
    module = tmp_path / "pimp.mjs"
    module.write_text(client.get("/pimp.js").text)

    def read(*jobs: dict) -> list[dict]:
        command = [node, str(READER), module.as_uri()]
        done = subprocess.run(command, input=json.dumps(jobs), capture_output=True, text=True, timeout=100, check=True)
        return json.loads(done.stdout)

    return read


def test_the_payloads_of_the_vectors_are_what_they_should_be(read, client, buffer):
    vectors = json.loads(VECTORS.read_text())
    jobs = []
    for vector in vectors:
        writer = Writer(client)
        writer.post([envelope(writer.job, 0, json.dumps(vector["metadata"]))]).raise_for_status()
        values = vector["values"]
        chunks = [envelope(writer.job, 1 + place, value) for place, value in enumerate(values)]
        chunks[-1] |= {"done": True} | ({"sha256": vector["sha256"]} if "sha256" in vector else {})
        writer.post(chunks).raise_for_status()
        jobs.append({"url": f"{buffer}/pimp/{writer.job}"})
    assert len(jobs) >= 10
    for vector, outcome in zip(vectors, read(*jobs), strict=True):
        if "payload" in vector:
            assert outcome.get("payload") == vector["payload"], vector["name"]
        else:
            assert outcome.get("code") == vector["code"], (vector["name"], outcome)


class Evil(BaseHTTPRequestHandler):
    """Answers what it is told to for each job."""

    answers: dict[str, tuple[int, bytes]]

    def do_GET(self) -> None:
        status, body = self.answers[self.path.split("?")[0].rpartition("/")[2]]
        self.send_response(status)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(ConnectionError):
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def evil() -> Iterator[tuple[str, dict]]:
    answers: dict[str, tuple[int, bytes]] = {}
    handler = type("Told", (Evil,), {"answers": answers})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", answers
    server.shutdown()
    thread.join()
    server.server_close()


def job(chunks, **more: object):
    return lambda identity: json.dumps({"chunks": chunks(identity), "nextIndex": 1} | more).encode()


def first(identity: str, **more: object) -> dict:
    return envelope(identity, 0, metadata("text/plain")) | more


def binary(*values: str, first: int = 1, **fields: object):
    def chunks(identity: str) -> list[dict]:
        made = [envelope(identity, first + place, value) for place, value in enumerate(values)]
        made[-1]["done"] = True
        return [envelope(identity, 0, metadata("a/b", "base64", **fields)), *made]

    return chunks


CASES = [
    ("MALFORMED", 200, lambda _: b"\xff{"),
    ("MALFORMED", 200, lambda _: b"[]"),
    ("MALFORMED", 200, lambda _: b'{"chunks": {}}'),
    ("MALFORMED", 200, job(lambda _: [first(str(uuid.uuid4()))])),
    ("MALFORMED", 200, job(lambda identity: [first(identity, index=-1)])),
    ("MALFORMED", 200, job(lambda identity: [first(identity, index="0")])),
    ("MALFORMED", 200, job(lambda identity: [first(identity, value="\ud800")])),
    ("MALFORMED", 200, job(lambda identity: [first(identity, value="[]")])),
    ("MALFORMED", 200, job(lambda identity: [first(identity, error="x")])),
    ("TOO_LARGE", 200, job(lambda identity: [first(identity), envelope(identity, 4096, "")])),
    ("TOO_LARGE", 200, job(lambda identity: [first(identity), envelope(identity, 1, "x" * 262_145)])),
    ("TOO_LARGE", 200, lambda _: b" " * (65 << 20)),
    ("STALLED", 200, job(lambda _: [])),
    ("STALLED", 503, lambda _: b"no"),
    ("UNEXPECTED_STATUS", 302, lambda _: b""),
    ("UNEXPECTED_STATUS", 418, lambda _: b"<b>tea"),
    ("EXPIRED", 410, lambda _: b'{"error": "late", "state": "EXPIRED"}'),
    ("LOST", 410, lambda _: b'{"error": "the disk", "code": "LOST"}'),
    # A gap that is never filled, whatever the buffer says comes next.
    ("STALLED", 200, job(binary("AAAA", first=2))),
    ("STALLED", 200, job(binary("AAAA", first=2), nextIndex=1 << 60)),
    ("CORRUPT", 200, job(binary("AA*A"))),
    ("CORRUPT", 200, job(binary("AAA"))),
    ("CORRUPT", 200, job(binary("AB==", "AAAA"))),
    ("CORRUPT", 200, job(binary("AAAA", contentLength=1 << 52))),
    ("CORRUPT", 200, job(binary("AAAA", contentLength=2))),
    ("MALFORMED", 200, job(binary("AAAA", contentLength=1 << 60))),
    ("MALFORMED", 200, job(binary("AAAA", contentLength=-1))),
    ("TOO_LARGE", 200, job(binary("AAAA", first=1 << 52))),
    ("MALFORMED", 200, job(binary("AAAA", first=1 << 60))),
]


def test_an_evil_buffer_is_found_out(read, evil):
    url, answers = evil
    bomb = base64.b64encode(gzip.compress(bytes(4 << 20))).decode()

    jobs = []
    for code, status, body in CASES:
        identity = str(uuid.uuid4())
        answers[identity] = (status, body(identity))
        jobs.append({"url": f"{url}/pimp/{identity}", "options": QUICK if code == "STALLED" else {"wait": 0}})
    identity = str(uuid.uuid4())
    values = [metadata("a/b", "base64", compression="gzip"), bomb]
    chunks = [envelope(identity, place, value, done=place == 1) for place, value in enumerate(values)]
    answers[identity] = (200, json.dumps({"chunks": chunks, "nextIndex": 2}).encode())
    jobs.append({"url": f"{url}/pimp/{identity}", "options": {"inflated": 1 << 20}})
    codes = [code for code, _, _ in CASES] + ["TOO_LARGE"]
    for code, case, outcome in zip(codes, jobs, read(*jobs), strict=True):
        assert (outcome.get("name"), outcome.get("code")) == ("PimpError", code), (case, outcome)


def test_a_buffer_that_takes_larger_jobs_is_read_by_who_says_so(read, evil):
    url, answers = evil
    limits = {"job": 1 << 30, "chunks": 5_000, "value": 300_000}
    cases = [
        (262_145, {}, "TOO_LARGE"),
        (262_145, {"limits": limits}, None),
        (262_145, {"limits": limits | {"job": 1_000}}, "TOO_LARGE"),
        (1, {"limits": {"chunks": 1}}, "TOO_LARGE"),
    ]
    jobs = []
    for length, options, _ in cases:
        identity = str(uuid.uuid4())
        chunks = [first(identity), envelope(identity, 1, "x" * length, done=True)]
        answers[identity] = (200, json.dumps({"chunks": chunks, "nextIndex": 2}).encode())
        jobs.append({"url": f"{url}/pimp/{identity}", "options": {"wait": 0} | options})
    for (length, options, code), outcome in zip(cases, read(*jobs), strict=True):
        assert outcome.get("code") == code, (options, outcome)
        assert code or outcome["payload"] == b"x".hex() * length
