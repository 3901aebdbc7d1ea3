"""PIMP as plain HTTP, written from the specification's text alone: what a sender with curl at hand would do."""

import base64
import hashlib
import json
import os
import secrets
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

__all__ = ["Patient", "Served", "Writer", "bearer", "envelope", "load", "metadata", "run_buffer", "serve", "speak"]

VECTORS = Path(__file__).parents[2] / "vectors" / "pimp"
JSON = {"Content-Type": "application/json"}


def envelope(job: str, index: object, value: object, *, done: object = False, **more: object) -> dict[str, object]:
    """A chunk; what is given by name takes a field's place."""
    fields = {"jobId": job, "index": index, "value": value, "done": done, "error": None, "createdAt": now()}
    return fields | more


def now() -> int:
    return time.time_ns() // 1_000_000


def metadata(content_type: str, encoding: str = "identity", **more: object) -> str:
    """The value of chunk 0."""
    return json.dumps({"contentType": content_type, "contentEncoding": encoding} | more)


class Patient(httpx.HTTPTransport):
    """Asks again when it was told that it asks too often, as every client must: tests guess many keys."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        while (answer := super().handle_request(request)).status_code == httpx.codes.TOO_MANY_REQUESTS:
            time.sleep(float(answer.headers.get("retry-after", "1")))
            answer.close()
        return answer


class Writer:
    """A job that is made and written."""

    def __init__(self, client: httpx.Client, *, read_key: str | None = None, ttl: int | None = None) -> None:
        self.client, self.read_key = client, read_key
        self.job, self.key = str(uuid.uuid4()), secrets.token_urlsafe(32)
        self.headers = {"Authorization": f"Bearer {self.key}"}
        self.index = 0
        self.encoding = "identity"
        self.hash = hashlib.sha256()
        settings = {"ttlMs": ttl, "readKey": read_key}
        body = {name: value for name, value in settings.items() if value is not None}
        self.made = client.put(f"/pimp/{self.job}", headers=self.headers, json=body)
        self.made.raise_for_status()

    def post(self, chunks: Iterable[object]) -> httpx.Response:
        body = json.dumps({"chunks": list(chunks)})
        headers = self.headers | {"Content-Type": "application/json"}
        return self.client.post(f"/pimp/{self.job}/chunks", headers=headers, content=body)

    def write(self, *values: str, done: bool = False, **more: object) -> httpx.Response:
        """Write values as the next chunks; `done` is of the last of them."""
        last = len(values) - 1
        chunks = []
        for place, value in enumerate(values):
            final = done and place == last
            chunks.append(envelope(self.job, self.index, value, done=final, **(more if place == last else {})))
            if self.index > 0:
                self.hash.update(base64.b64decode(value) if self.encoding == "base64" else value.encode())
            self.index += 1
        return self.post(chunks)

    def begin(self, content_type: str, encoding: str = "identity", **more: object) -> httpx.Response:
        self.encoding = encoding
        return self.write(metadata(content_type, encoding, **more))

    def end(self, value: str = "") -> httpx.Response:
        """Write the final chunk, with the payload's SHA-256."""
        data = base64.b64decode(value) if self.encoding == "base64" else value.encode()
        self.hash.update(data)
        return self.post([envelope(self.job, self.index, value, done=True, sha256=self.hash.hexdigest())])

    def poll(self, *, start: int = 0, key: str | None = None, **query: object) -> httpx.Response:
        key = key or self.read_key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return self.client.get(f"/pimp/{self.job}", params={"from": start} | query, headers=headers)


def load(name: str) -> list[dict]:
    """Read a file of vectors, which the tests of the core read too."""
    return json.loads((VECTORS / f"{name}.json").read_text())


def bearer(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key is not None else {}


class Dialogue:
    """A job as the vectors speak with it."""

    def __init__(self, client: httpx.Client, name: str, read_key: str | None, *, lives: int | None) -> None:
        self.client, self.job, self.name = client, str(uuid.uuid4()), name
        body = {"ttlMs": lives, "readKey": read_key}
        body = {field: value for field, value in body.items() if value is not None}
        made = client.put(f"/pimp/{self.job}", headers=bearer("w"), json=body)
        assert made.status_code == 201

    def expire(self) -> None:
        """Wait until it has expired."""
        while self.client.get(f"/pimp/{self.job}", headers=bearer("w")).status_code != httpx.codes.GONE:
            time.sleep(0.05)

    def ask(self, step: dict) -> httpx.Response:
        path, key = f"/pimp/{self.job}", bearer(step.get("key", "w"))
        if "poll" in step:
            return self.client.get(f"{path}?{step['poll']}", headers=key)
        if "write" in step:
            chunks = [self.chunk(**fields) for fields in step["write"]]
            return self.client.post(f"{path}/chunks", headers=key | JSON, content=json.dumps({"chunks": chunks}))
        if "cancel" in step:
            return self.client.post(f"{path}/cancel", headers=key)
        if "delete" in step:
            return self.client.delete(path, headers=key)
        if "take_over" in step:
            return self.client.put(path, headers=key | {"If-Match": step["if_match"]}, json=step["take_over"])
        return self.client.put(path, headers=key, json=step["create"])

    def chunk(self, index: int, value: str | None = None, **more: object) -> dict:
        return envelope(self.job, index, metadata("text/plain") if value is None else value, **more)


def speak(client: httpx.Client, vector: dict) -> None:
    """Hold a dialogue of the vectors with a buffer; where a job is to expire, that is waited for."""
    lives = 1_000 if any("at" in step for step in vector["steps"]) else None
    job = Dialogue(client, vector["name"], vector.get("read_key"), lives=lives)
    for number, step in enumerate(vector["steps"]):
        place = f"step {number}: {step}"
        if step.get("at", 0) >= 1_000:
            job.expire()
        answer = job.ask(step)
        assert answer.status_code == step["status"], (place, answer.text)
        body = answer.json() if answer.content else {}
        if answer.is_success:
            for field in {"written", "duplicates", "cancelled", "nextIndex"} & set(step):
                assert body.get(field) == step[field], (place, body)
            if "indices" in step:
                assert [chunk["index"] for chunk in body["chunks"]] == step["indices"], place
            if "etag" in step:
                assert answer.headers["etag"] == step["etag"].replace('"1"', answer.headers["etag"]), place
        else:
            assert isinstance(body["error"], str), place
            assert (body.get("state") == "EXPIRED") == (answer.status_code == httpx.codes.GONE), place
        if answer.is_success and "state" in step:
            key = step.get("key") if step.get("key") == "new" else "w"
            status = client.get(f"/pimp/{job.job}/status", headers=bearer(key)).json()
            assert status["state"] == step["state"], place


class Served:
    """A buffer of the command line, in a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        self.process = process
        line = process.stdout.readline()
        words = line.split()
        assert words[:1] == ["listening"], line
        self.address = words[1]
        self.fingerprint = words[3] if len(words) > 2 else None
        self.url = f"{'https' if self.fingerprint else 'http'}://{self.address}"


@contextmanager
def run_buffer(*arguments: str | Path, **options: Any) -> Iterator[Served]:
    """Run ``penstock pimp serve``; it is killed at the end, unless it has ended."""
    command = [sys.executable, "-m", "penstock", "pimp", "serve", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options) as process:
        try:
            yield Served(process)
        finally:
            process.kill()


@contextmanager
def serve(folder: Path, *options: str) -> Iterator[str]:
    """A buffer: that of PENSTOCK_PIMP=URL, or one of ours in a process of its own, on loopback as behind a proxy."""
    given = os.environ.get("PENSTOCK_PIMP")
    if given is not None and not options:
        yield given.rstrip("/")
        return
    arguments = ["--listen", "127.0.0.1:0", "--behind-proxy", *(options or ["--store", str(folder / "store")])]
    with (folder / "log").open("w") as log, run_buffer(*arguments, cwd=folder, stderr=log) as served:
        yield served.url
        served.process.terminate()
        assert served.process.wait(60) == 0
