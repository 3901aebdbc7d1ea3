"""Is copied beside the reference's tests: connects them, with the reference or with ours, to a worker."""

import contextlib
import importlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

SUITE, TRANSPORT, WORKER = os.environ["SUITE"], os.environ["TRANSPORT"], os.environ["WORKER"].split("\n")
vgi = importlib.import_module("vgi_rpc" if SUITE == "vgi_rpc.conformance" else "penstock.vgi")
rpc = importlib.import_module(f"{vgi.__name__}.rpc")
http = importlib.import_module(f"{vgi.__name__}.http") if TRANSPORT == "http" else None
conformance = importlib.import_module(SUITE)

# It needs a server, over HTTP, that lets nobody in, which only we start.
LEFT_OUT = set() if "CLOSED" in os.environ else {"TestHealth"}
# It needs a store, and is run by itself.
STORED = "TestExternalLocation"
# On a connection that is used again, these meet the reference's own fault: its worker takes what comes after an error
# of a stream's beginning for the next request.
SPOILING = {"test_produce_error_on_init", "test_exchange_error_on_init"} if os.environ.get("SPOILS") else set()


def pytest_collection_modifyitems(items):
    names = LEFT_OUT | SPOILING
    items[:] = [
        item
        for item in items
        if not names & {getattr(item.cls, "__name__", ""), item.originalname}
        and (getattr(item.cls, "__name__", "") == STORED) == (TRANSPORT == "external")
    ]


@pytest.fixture(scope="session")
def place():
    """Where the worker listens, or a pool of workers."""
    if TRANSPORT in ("pipe", "shm"):
        with vgi.WorkerPool(**({"shm_size": 16 << 20} if TRANSPORT == "shm" else {})) as pool:
            yield pool
        return
    path = str(Path(tempfile.mkdtemp(), "socket"))
    flags = ["--unix", path, "--threaded"] if TRANSPORT == "unix" else ["--http"]
    worker = subprocess.Popen([*WORKER, *flags], stdout=subprocess.PIPE, text=True)
    try:
        said = worker.stdout.readline().strip().partition(":")[2]
        # The reference says so before it listens.
        where = path if TRANSPORT == "unix" else ("127.0.0.1", int(said))
        while not _listens(where):
            time.sleep(0.01)
        yield said
    finally:
        worker.terminate()
        worker.wait()


@pytest.fixture(scope="session")
def conformance_http_port(place):
    """Where the worker listens."""
    return int(place)


@pytest.fixture(scope="session")
def conformance_http_auth_port():
    """Where a server listens that lets nobody in."""
    return int(os.environ["CLOSED"])


@pytest.fixture(scope="session")
def conformance_fake_storage():
    """The suite's own store, in a thread."""
    url, end = importlib.import_module(f"{SUITE}.fake_storage").serve_in_thread()
    yield url
    end()


@contextlib.contextmanager
def _storing(*arguments):
    worker = subprocess.Popen([*WORKER, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        port = int(worker.stdout.readline().strip().partition(":")[2])
        while not _listens(("127.0.0.1", port)):
            time.sleep(0.01)
        yield port
    finally:
        worker.terminate()
        worker.wait()


@pytest.fixture(scope="session")
def conformance_http_with_storage_port(conformance_fake_storage):
    with _storing(conformance_fake_storage, "plain") as port:
        yield port


@pytest.fixture(scope="session")
def conformance_http_with_zstd_storage_port(conformance_fake_storage):
    with _storing(conformance_fake_storage, "zstd") as port:
        yield port


def _listens(where):
    with socket.socket(socket.AF_UNIX if isinstance(where, str) else socket.AF_INET) as probe:
        return probe.connect_ex(where) == 0


@pytest.fixture(params=[TRANSPORT])
def conformance_conn(request, place):  # noqa: ARG001 -- the tests ask for its parameter
    @contextlib.contextmanager
    def connect(on_log=None):
        service = conformance.ConformanceService
        if TRANSPORT in ("pipe", "shm"):
            context = place.connect(service, WORKER, on_log=on_log)
        elif TRANSPORT == "unix":
            context = rpc.unix_connect(service, place, on_log=on_log)
        else:
            context = http.http_connect(service, f"http://127.0.0.1:{place}", on_log=on_log)
        with context as proxy:
            yield proxy

    return connect


sys.dont_write_bytecode = True
