"""`penstock pimp serve` from outside: signed tokens, a disk that is full, thousands that wait."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import uuid

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import OctKey
from pimp_http import Writer, envelope, load, metadata, run_buffer, serve, speak

from ..faults.small_disk import SmallDisk, disk
from ..ports import free_port

__all__ = ["disk"]
SECRET = b"a secret of 32 bytes, no less!!"
JSON = {"Content-Type": "application/json"}


def token(job: str, expires: float, secret: bytes = SECRET) -> str:
    return jwt.encode({"alg": "HS256"}, {"jobId": job, "exp": expires}, OctKey.import_key(secret))


@pytest.mark.parametrize("vector", load("jobs"), ids=lambda vector: vector["name"])
def test_a_buffer_in_this_process_answers_as_the_dialogues_say(buffer, vector):
    with httpx.Client(base_url=buffer.url) as client:
        speak(client, vector)


def test_a_signed_token_makes_its_job_with_the_first_write(tmp_path):
    (tmp_path / "secret").write_bytes(SECRET + b"\n")
    options = ("--store", "memory:", "--jwt-secret", str(tmp_path / "secret"))
    with serve(tmp_path, *options) as url, httpx.Client(base_url=url) as client:
        job = str(uuid.uuid4())

        def write(key: str) -> httpx.Response:
            body = json.dumps({"chunks": [envelope(job, 0, metadata("text/plain"))]})
            headers = JSON | {"Authorization": f"Bearer {key}"}
            return client.post(f"/pimp/{job}/chunks", headers=headers, content=body)

        soon = time.time() + 60
        for wrong in (token(str(uuid.uuid4()), soon), token(job, time.time() - 1), token(job, soon + 3_600)):
            assert write(wrong).status_code == 401, "it is signed, and does not count"
        for wrong in (token(job, soon, bytes(32)), "writer"):
            assert write(wrong).status_code == 404, "the job is not known"
        right = token(job, soon)
        assert write(right).status_code == 201
        assert write(right).status_code == 200
        assert write(token(job, soon + 1)).status_code == 200, "a newer one takes its place"
        assert write(right).status_code == 401
        assert client.get(f"/pimp/{job}/status").json()["state"] == "ACTIVE"


@pytest.fixture
def redis_over_tls(tmp_path):
    """A Redis that speaks TLS alone: its address, and the CA that has signed its certificate."""
    if shutil.which("redis-server") is None:
        pytest.skip("NOT TESTED: a store in Redis over TLS; there is no redis-server: `apt install redis-server`")
    tls = tmp_path / "tls"
    subprocess.run([sys.executable, "-m", "penstock", "cert", str(tls)], check=True, capture_output=True)
    port = free_port()
    options = {"--port": "0", "--tls-port": str(port), "--tls-auth-clients": "no", "--save": "", "--bind": "127.0.0.1"}
    options |= {
        "--tls-cert-file": tls / "cert.pem",
        "--tls-key-file": tls / "key.pem",
        "--tls-ca-cert-file": tls / "ca.pem",
    }
    command = ["redis-server", "--dir", str(tmp_path), *(str(each) for pair in options.items() for each in pair)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert any("eady to accept connections" in line for line in process.stdout)
        yield f"localhost:{port}", tls / "ca.pem"
        process.kill()


def test_a_store_in_redis_over_tls(redis_over_tls):
    address, ca = redis_over_tls
    arguments = ("--listen", "127.0.0.1:0", "--behind-proxy", "--store", f"rediss://{address}")
    trusting = os.environ | {"SSL_CERT_FILE": str(ca)}
    with run_buffer(*arguments, env=trusting) as served, httpx.Client(base_url=served.url) as client:
        writer = Writer(client)
        writer.begin("text/plain")
        assert writer.end("kept").status_code == 201
        assert client.get(f"/pimp/{writer.job}/raw").content == b"kept"
    # Whom nobody has named is not trusted.
    command = [sys.executable, "-m", "penstock", "pimp", "serve", *arguments]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1
    assert "certificate" in refused.stderr
    plain = [*command[:-1], f"redis://{address}"]
    assert subprocess.run(plain, capture_output=True, timeout=60).returncode == 1


def test_a_full_disk_is_503_until_there_is_room(tmp_path, disk: SmallDisk):
    with serve(tmp_path, "--store", str(disk.mount / "store")) as url, httpx.Client(base_url=url, timeout=60) as client:
        writer = Writer(client)
        writer.begin("text/plain")
        disk.fill(leave=20_000)
        chunk = envelope(writer.job, 1, "x" * 100_000)
        refused = writer.post([chunk])
        assert (refused.status_code, refused.json()["code"]) == (503, "UNAVAILABLE")
        assert int(refused.headers["retry-after"]) >= 1
        assert [each["index"] for each in writer.poll().json()["chunks"]] == [0], "nothing half, and reading goes on"
        disk.free()
        assert writer.post([chunk]).status_code == 201
        assert [each["index"] for each in writer.poll().json()["chunks"]] == [0, 1]


def test_a_thousand_polls_that_wait_cost_little_and_are_all_answered(tmp_path):
    with serve(tmp_path, "--store", "memory:") as url, httpx.Client(base_url=url, timeout=60) as client:
        writer = Writer(client)
        host, port = url.removeprefix("http://").split(":")
        request = f"GET /pimp/{writer.job}?wait=30000 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
        held = []
        for _ in range(1_000):
            waiting = socket.create_connection((host, int(port)), timeout=60)
            waiting.sendall(request)
            held.append(waiting)
        writer.begin("text/plain")
        for waiting in held:
            with waiting, waiting.makefile("rb") as answer:
                data = answer.read()
                assert data.startswith(b"HTTP/1.1 200")
                assert data.count(b'"index":0') == 1
