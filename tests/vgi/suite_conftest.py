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

# They need servers of their own kinds: storage; and, over HTTP, one that lets nobody in, which only we start.
LEFT_OUT = {"TestExternalLocation"} | (set() if "CLOSED" in os.environ else {"TestHealth"})
# On a connection that is used again, these meet the reference's own fault: its worker takes what comes after an error
# of a stream's beginning for the next request.
SPOILING = {"test_produce_error_on_init", "test_exchange_error_on_init"} if os.environ.get("SPOILS") else set()


def pytest_collection_modifyitems(items):
    names = LEFT_OUT | SPOILING
    items[:] = [item for item in items if not names & {getattr(item.cls, "__name__", ""), item.originalname}]


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
