"""Both sides of a measurement of vgi: a worker, and a caller that prints figures as JSON.

Runs with penstock or with the reference, whichever the first argument names, in the Python that has it:
``_vgi_worker.py penstock.vgi worker`` and ``_vgi_worker.py penstock.vgi call add 2000 0``.
"""

import importlib
import json
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path
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


def call(what: str, count: int, octets: int) -> dict[str, float]:
    """Make calls, or steps of an exchange of batches with so many octets, and give the figures."""
    with vgi.connect(Service, [sys.executable, str(Path(__file__)), sys.argv[1], "worker"]) as service:
        if what == "add":
            step = lambda: service.add(a=1.0, b=2.0)  # noqa: E731
            return measured(service, step, count)
        batch = vgi.AnnotatedBatch.from_pydict({"value": [0.5] * (octets // 8)}, schema=VALUES)
        with service.echo() as stream:
            return measured(None, lambda: stream.exchange(batch), count)


def measured(service: Any, step: Any, count: int) -> dict[str, float]:
    """Time so many steps after a few that are not timed."""
    for _ in range(max(1, count // 10)):
        step()
    there = service.cpu() if service is not None else 0.0
    ours, began = cpu_seconds(), time.perf_counter()
    for _ in range(count):
        step()
    seconds, ours = time.perf_counter() - began, cpu_seconds() - ours
    there = service.cpu() - there if service is not None else 0.0
    return {
        "per_second": count / seconds,
        "us": seconds / count * 1e6,
        "worker_cpu_us": there / count * 1e6,
        "caller_cpu_us": ours / count * 1e6,
    }


if __name__ == "__main__":
    if sys.argv[2] == "worker":
        sys.argv[1:] = []
        vgi.run_server(Service, ServiceImpl())
    else:
        print(json.dumps(call(sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))))
