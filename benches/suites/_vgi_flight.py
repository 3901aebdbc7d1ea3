"""Arrow Flight doing what `_vgi_worker.py` does.

``_vgi_flight.py serve``, and ``_vgi_flight.py call TCP add 2000 0``.
"""

import json
import resource
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import flight

VALUES = pa.schema([("value", pa.float64())])
_TWO = struct.Struct("<dd")
_ONE = struct.Struct("<d")


class Server(flight.FlightServerBase):  # type: ignore[misc]
    """Adds two numbers (DoAction), gives batches back (DoExchange)."""

    def do_action(self, context: Any, action: Any) -> list[Any]:  # noqa: ARG002
        """Add, or say how many seconds of CPU were used."""
        if action.type == "cpu":
            return [flight.Result(_ONE.pack(cpu_seconds()))]
        a, b = _TWO.unpack(action.body.to_pybytes())
        return [flight.Result(_ONE.pack(a + b))]

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:  # noqa: ARG002
        """Give back what comes."""
        writer.begin(VALUES)
        for chunk in reader:
            writer.write_batch(chunk.data)


def cpu_seconds() -> float:
    """Seconds of CPU of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def call(what: str, count: int, size: int) -> dict[str, float]:
    """Make calls, or steps of an exchange, and give the figures."""
    with subprocess.Popen([sys.executable, str(Path(__file__)), "serve"], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None  # noqa: S101 -- a pipe was asked for
            with flight.connect(f"grpc://127.0.0.1:{int(server.stdout.readline())}") as client:
                return _call(client, what, count, size)
        finally:
            server.kill()


def _call(client: Any, what: str, count: int, size: int) -> dict[str, float]:
    def worker_cpu() -> float:
        return float(_ONE.unpack(next(client.do_action(flight.Action("cpu", b""))).body.to_pybytes())[0])

    def add() -> float:
        answer = next(client.do_action(flight.Action("add", _TWO.pack(1.0, 2.0))))
        return float(_ONE.unpack(answer.body.to_pybytes())[0])

    if what == "add":
        return _measured(add, worker_cpu, count)
    batch = pa.record_batch({"value": [0.5] * (size // 8)}, schema=VALUES)
    writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(b"echo"))
    with writer:
        writer.begin(VALUES)

        def step() -> None:
            writer.write_batch(batch)
            reader.read_chunk()

        return _measured(step, worker_cpu, count)


def _measured(step: Any, worker_cpu: Any, count: int) -> dict[str, float]:
    for _ in range(max(10, count // 5)):
        step()
    there, ours, began = worker_cpu(), cpu_seconds(), time.perf_counter()
    for _ in range(count):
        step()
    seconds, ours, there = time.perf_counter() - began, cpu_seconds() - ours, worker_cpu() - there
    return {
        "per_second": count / seconds,
        "us": seconds / count * 1e6,
        "caller_cpu_us": ours / count * 1e6,
        "worker_cpu_us": there / count * 1e6,
    }


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        listening = Server("grpc://127.0.0.1:0")
        print(listening.port, flush=True)
        listening.serve()
    else:
        print(json.dumps(call(sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))))
