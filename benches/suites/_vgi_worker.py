"""Both sides of a measurement of vgi: a worker, and a caller that prints figures as JSON.

Runs with penstock or with the reference, whichever the first argument names, in the Python that has it:
``_vgi_worker.py penstock.vgi worker``, ``_vgi_worker.py penstock.vgi serve`` (HTTP), ``_vgi_worker.py penstock.vgi unix
PATH`` and ``_vgi_worker.py penstock.vgi call pipe add 2000 0``.
"""

import importlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Protocol

import pyarrow as pa

vgi: Any = importlib.import_module(sys.argv[1])
VALUES = pa.schema([("value", pa.float64())])


@dataclass
class Echo(vgi.ExchangeState):  # type: ignore[misc]
    """Gives back what comes."""

    steps: int = 0

    def exchange(self, input: Any, out: Any, ctx: Any) -> None:  # noqa: A002, ARG002
        """Give it back."""
        self.steps += 1
        out.emit(input.batch)


class Service(Protocol):
    """What is measured."""

    def add(self, a: float, b: float) -> float: ...
    def cpu(self) -> float: ...
    def echo(self) -> vgi.Stream[Echo]: ...


class ServiceImpl:
    """Does as little as it can."""

    def add(self, a: float, b: float) -> float:
        """Add."""
        return a + b

    def cpu(self) -> float:
        """Seconds of CPU of the worker so far."""
        return cpu_seconds()

    def echo(self) -> vgi.Stream[Echo]:
        """Give back what comes."""
        return vgi.Stream(output_schema=VALUES, state=Echo(), input_schema=VALUES)


def cpu_seconds() -> float:
    """Seconds of CPU of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def random_batch(size: int) -> pa.RecordBatch:
    """So many bytes of random numbers between 0 and 1: what measurements look like to a compressor."""
    chance = Random(size)  # noqa: S311 -- nothing is secret
    values = array("d", (chance.random() for _ in range(size // 8)))
    return pa.RecordBatch.from_arrays(
        [pa.Array.from_buffers(pa.float64(), len(values), [None, pa.py_buffer(values)])], schema=VALUES
    )


@contextmanager
def stranger(this: list[str]) -> Iterator[Any]:
    """A transport to a worker on a Unix socket that is no child of this process: a shell between them is its parent."""
    rpc = importlib.import_module(f"{sys.argv[1]}.rpc")
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "socket"))
        command = ["sh", "-c", '"$@" & wait', "sh", *this, "unix", path]
        with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as shell:
            try:
                assert shell.stdout is not None  # noqa: S101 -- a pipe was asked for
                shell.stdout.readline()
                connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                connection.connect(path)
                transport = rpc.UnixTransport(connection)
                yield transport
                transport.close()
            finally:
                os.killpg(shell.pid, signal.SIGKILL)


@contextmanager
def connected(transport: str, size: int) -> Iterator[Any]:
    """A worker of its own, reached over its standard input and output, with shared memory beside them, or HTTP.

    Or over a Unix socket, as a process that is neither child nor parent, and with shared memory that is copied then.
    """
    this = [sys.executable, str(Path(__file__)), sys.argv[1]]
    if transport == "pipe":
        with vgi.connect(Service, [*this, "worker"]) as service:
            yield service
        return
    if transport == "http":
        http = importlib.import_module(f"{sys.argv[1]}.http")
        with subprocess.Popen([*this, "serve"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
            try:
                assert server.stdout is not None  # noqa: S101 -- a pipe was asked for
                port = int(server.stdout.readline().decode().removeprefix("PORT:"))
                with http.http_connect(Service, f"http://127.0.0.1:{port}") as service:
                    yield service
            finally:
                server.kill()
        return
    rpc, shm = importlib.import_module(f"{sys.argv[1]}.rpc"), importlib.import_module(f"{sys.argv[1]}.shm")
    if transport == "unix":
        with stranger(this) as unix, rpc.RpcConnection(Service, unix) as service:
            yield service
        return
    # There, back, and those that are still looked at; with what lies around the bytes.
    segment = shm.ShmSegment.create(8 * (size + (64 << 10)))
    if transport == "shm-copied":
        try:
            with stranger(this) as unix, rpc.RpcConnection(Service, rpc.ShmPipeTransport(unix, segment)) as service:
                yield service
        finally:
            segment.unlink()
        return
    child = rpc.SubprocessTransport([*this, "worker"])
    try:
        with rpc.RpcConnection(Service, rpc.ShmPipeTransport(child, segment)) as service:
            yield service
    finally:
        child.close()
        segment.unlink()


def call(transport: str, what: str, count: int, size: int) -> dict[str, float]:
    """Make calls, or steps of an exchange of batches with so many bytes, and give the figures."""
    with connected(transport, size) as service:
        warm_up(lambda: service.add(a=1.0, b=2.0))
        if what == "add":
            there = service.cpu()
            figures = measured(lambda: service.add(a=1.0, b=2.0), count)
            return figures | {"worker_cpu_us": (service.cpu() - there) / count * 1e6}
        batch = vgi.AnnotatedBatch(random_batch(size))
        with service.echo() as stream:
            if not stream.exchange(batch).batch.equals(batch.batch):
                raise RuntimeError("another batch came back")
            for _ in range(max(10, count // 5)):
                stream.exchange(batch)
        there = service.cpu()
        with service.echo() as stream:
            figures = measured(lambda: stream.exchange(batch), count)
        return figures | {"worker_cpu_us": (service.cpu() - there) / count * 1e6}


def warm_up(step: Any) -> None:
    """Over HTTP the first calls ask for more than the method."""
    for _ in range(20):
        step()


def measured(step: Any, count: int) -> dict[str, float]:
    """Time so many steps."""
    ours, began = cpu_seconds(), time.perf_counter()
    for _ in range(count):
        step()
    seconds, ours = time.perf_counter() - began, cpu_seconds() - ours
    return {"per_second": count / seconds, "us": seconds / count * 1e6, "caller_cpu_us": ours / count * 1e6}


if __name__ == "__main__":
    if sys.argv[2] == "worker":
        sys.argv[1:] = []
        vgi.run_server(Service, ServiceImpl())
    elif sys.argv[2] == "serve":
        importlib.import_module(f"{sys.argv[1]}.http").serve_http(vgi.RpcServer(Service, ServiceImpl()))
    elif sys.argv[2] == "unix":
        server = vgi.RpcServer(Service, ServiceImpl())
        unix = importlib.import_module(f"{sys.argv[1]}.rpc").serve_unix
        unix(server, sys.argv[3], announce=lambda: print("ready", flush=True))
    else:
        print(json.dumps(call(sys.argv[3], sys.argv[4], int(sys.argv[5]), int(sys.argv[6]))))
