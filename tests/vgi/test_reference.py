"""The reference's own tests: with our caller and our worker, and with one of each in both directions."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUITE = Callable[..., dict[str, int]]
# Of about 145; those that are skipped say so for a transport.
MANY = 130
_MAIN = "from {}._cli import main; main()"
# The reference's own command needs another web server.
_HTTP = (
    "from penstock.vgi import RpcServer; from penstock.vgi.http import *; from vgi_conformance import *; "
    "serve_http(RpcServer(ConformanceService, ConformanceServiceImpl()){})"
)
_CLOSED = ", authenticate=bearer_authenticate_static(tokens={})"
# A worker whose large batches go by a store: the store's URL and how they are compressed are its arguments.
_STORES = """
import sys
from {vgi} import Compression, ExternalLocationConfig, RpcServer
from {suite} import ConformanceService, ConformanceServiceImpl
from {suite}.fake_storage import FakeStorageBackend

store = FakeStorageBackend(sys.argv[1])
compression = Compression() if sys.argv[2] == "zstd" else None
external = ExternalLocationConfig(store, 10_000, compression=compression, url_validator=None)
server = RpcServer(ConformanceService, ConformanceServiceImpl(), external_location=external)
options = {{"upload_url_provider": store, "max_request_bytes": 35_000, "max_upload_bytes": 1 << 20}}
"""
_OURS_STORES = _STORES.format(vgi="penstock.vgi", suite="vgi_conformance") + (
    "from penstock.vgi.http import serve_http\nserve_http(server, **options)"
)
_THEIRS_STORE = (
    _STORES.format(vgi="vgi_rpc", suite="vgi_rpc.conformance")
    + """
import socket
import waitress
from vgi_rpc.http import make_wsgi_app

listener = socket.create_server(("127.0.0.1", 0))
print(f"PORT:{listener.getsockname()[1]}", flush=True)
waitress.serve(make_wsgi_app(server, **options), sockets=[listener])
"""
)


def _line(script: str) -> str:
    """Give a script in one line: the arguments of a worker are separated by the ends of lines."""
    return "; ".join(filter(None, script.splitlines()))


def _ours(transport: str) -> list[str]:
    return [sys.executable, "-c", _HTTP.format("") if transport == "http" else _MAIN.format("vgi_conformance")]


def _with(folder: Path) -> dict[str, str]:
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH", str(ROOT / "python"))])])
    return {"PYTHONPATH": path, "PENSTOCK_VGI_DIALECT": "0.10", "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.mark.parametrize("transport", ["pipe", "unix", "http"])
def test_our_caller_and_our_worker_pass_them(run_suite: SUITE, translated: Path, transport: str) -> None:
    counts = run_suite(sys.executable, "vgi_conformance", transport, _ours(transport), **_with(translated))
    assert counts["passed"] >= MANY, counts


@pytest.mark.parametrize("transport", ["pipe", "unix", "shm", "http"])
def test_our_caller_passes_them_with_the_references_worker(
    run_suite: SUITE, translated: Path, reference: Path, transport: str
) -> None:
    worker = ["env", "-u", "PYTHONPATH", str(reference), "-c", _MAIN.format("vgi_rpc.conformance")]
    spoils = {"SPOILS": "1"} if transport in ("pipe", "shm") else {}
    counts = run_suite(sys.executable, "vgi_conformance", transport, worker, **_with(translated), **spoils)
    assert counts["passed"] >= MANY, counts


@pytest.mark.parametrize("transport", ["pipe", "unix", "shm", "http"])
def test_the_references_caller_passes_them_with_our_worker(
    run_suite: SUITE, translated: Path, reference: Path, transport: str
) -> None:
    path = _with(translated)["PYTHONPATH"]
    worker = ["env", f"PYTHONPATH={path}", *_ours(transport)]
    with contextlib.ExitStack() as closing:
        more = {"CLOSED": closing.enter_context(_closed(_with(translated)))} if transport == "http" else {}
        counts = run_suite(reference, "vgi_rpc.conformance", transport, worker, PENSTOCK_VGI_DIALECT="0.10", **more)
    assert counts["passed"] >= MANY, counts


@contextlib.contextmanager
def _closed(environment: dict[str, str]) -> Iterator[str]:
    """A worker over HTTP that lets nobody in; gives its port."""
    command = [sys.executable, "-c", _HTTP.format(_CLOSED)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip().removeprefix("PORT:")
        finally:
            process.terminate()


@pytest.mark.parametrize("ends", ["ours", "our caller", "our worker"])
def test_their_tests_of_stored_batches_pass(run_suite: SUITE, translated: Path, reference: Path, ends: str) -> None:
    environment = _with(translated)
    path = environment["PYTHONPATH"]
    if ends == "our caller":
        worker = ["env", "-u", "PYTHONPATH", str(reference), "-c", _line(_THEIRS_STORE)]
    else:
        worker = ["env", f"PYTHONPATH={path}", sys.executable, "-c", _line(_OURS_STORES)]
    if ends == "our worker":
        counts = run_suite(reference, "vgi_rpc.conformance", "external", worker, PENSTOCK_VGI_DIALECT="0.10")
    else:
        counts = run_suite(sys.executable, "vgi_conformance", "external", worker, **environment)
    assert counts == {"passed": 7}, counts
