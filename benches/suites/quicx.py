"""Quicx beside Redis lists, beanstalkd and gearmand.

One client for all (`peers/queues`): plain sockets, the same loop, the same number of requests on their way. Tasks
have 64 bytes. A cycle is submitted, taken by one of four workers and acknowledged: with Redis by BLMOVE into the
worker's own list and LREM, so that a dead worker's task is not lost there either. The daemon is `penstock quicx start`
in a process of its own, and so are the others.
"""

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benches.runner import Bench, at_least, at_most
from benches.runner.machine import REPOSITORY

_SIZE = 64
_WINDOW = 1_024
_PREFETCH = 64
_PEERS = ("redis", "beanstalkd", "gearmand")

_PYTHON_OURS = """
import json, sys, time
from penstock.quicx import Producer
address, count, size = sys.argv[1], *map(int, sys.argv[2:])
payloads = [b"x" * size] * 1024
with Producer(address) as producer:
    began = time.perf_counter()
    for _ in range(count // 1024):
        producer.submit_many("t", payloads)
print(json.dumps({"count": count // 1024 * 1024, "seconds": time.perf_counter() - began}))
"""

_PYTHON_REDIS = """
import json, sys, time
import redis
address, count, size = sys.argv[1], *map(int, sys.argv[2:])
host, port = address.split(":")
payloads = [b"x" * size] * 1024
client = redis.Redis(host, int(port))
began = time.perf_counter()
for _ in range(count // 1024):
    pipeline = client.pipeline(transaction=False)
    for payload in payloads:
        pipeline.rpush("tasks", payload)
    pipeline.execute()
print(json.dumps({"count": count // 1024 * 1024, "seconds": time.perf_counter() - began}))
"""


@contextmanager
def _server(system: str, *, durable: bool = False) -> Iterator[str]:
    """Run a daemon, with what it keeps on disk or with nothing there; give its address."""
    with TemporaryDirectory(dir=REPOSITORY / "target") as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        process = subprocess.Popen(
            _command(system, port, Path(folder), durable=durable),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
        )
        try:
            _wait(port, process)
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def _command(system: str, port: int, folder: Path, *, durable: bool) -> list[str]:
    where = ["127.0.0.1", str(port)]
    if system == "quicx":
        command = [sys.executable, "-m", "penstock", "quicx", "start", "--listen", ":".join(where)]
        command += ["--pool-bytes", str(512 << 20)]
        return [*command, "--journal", str(folder / "journal")] if durable else command
    program = shutil.which({"redis": "redis-server"}.get(system, system), path="/usr/bin:/usr/sbin:/usr/local/bin")
    if program is None:
        raise RuntimeError(f"{system} is not installed: apt-get install redis-server beanstalkd gearman-job-server")
    if system == "redis":
        options = ["--appendonly", "yes", "--appendfsync", "everysec"] if durable else ["--appendonly", "no"]
        return [program, "--bind", where[0], "--port", where[1], "--save", "", "--dir", str(folder), *options]
    if system == "beanstalkd":
        return [program, "-l", where[0], "-p", where[1], *(["-b", str(folder), "-f", "0"] if durable else [])]
    return [program, "-L", where[0], "-p", where[1], "-l", str(folder / "log"), "-t", "1"]


def _wait(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    raise RuntimeError("a daemon did not begin to listen")


class _Client:
    """Calls the client."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.program = bench.peer("queues")

    def call(self, mode: str, system: str, count: int, window: int, *, durable: bool = False) -> Callable[[], Any]:
        """Run a mode against a fresh daemon."""

        def run() -> Any:
            with _server(system, durable=durable) as address:
                words = (mode, system, address, str(count), str(_SIZE), str(window))
                return self.bench.json_of(self.program, *words)

        return run

    def python(self, program: str, system: str, count: int) -> Callable[[], Any]:
        """Run a program of Python's against a fresh daemon."""

        def run() -> Any:
            with _server(system) as address:
                return self.bench.json_of(sys.executable, "-c", program, address, str(count), str(_SIZE))

        return run


def run(bench: Bench) -> None:
    """Submits, cycles, latency, Python, the journal."""
    bench.use_extension()
    client = _Client(bench)
    _submits(client)
    _cycles(client)
    _latency(client)
    _python(client)
    _journal(client)


def _rates(runs: list[Any]) -> list[float]:
    return [run["count"] / run["seconds"] for run in runs]


def _against(
    bench: Bench, what: str, made: Mapping[str, list[Any]], bars: Mapping[str, float], *, ours: str = "quicx"
) -> None:
    for peer in (name for name in made if name != ours):
        bench.record(
            what,
            "tasks/s",
            _rates(made[ours]),
            peer=_rates(made[peer]),
            peer_name=peer,
            ratio_of="ours/peer",
            bar=at_least(bars[peer]) if peer in bars else None,
            missed=_MISSED.get(what),
        )


def _submits(client: _Client) -> None:
    count = client.bench.sized(400_000, 2_000)
    sides = {name: client.call("submit", name, count, _WINDOW) for name in ("quicx", *_PEERS)}
    made = client.bench.interleaved(sides, runs=5)
    _against(client.bench, f"submit, {_WINDOW:,} on their way", made, {"redis": 1.5})


def _cycles(client: _Client) -> None:
    count = client.bench.sized(200_000, 1_000)
    sides = {name: client.call("cycle", name, count, _PREFETCH) for name in ("quicx", *_PEERS)}
    one = "quicx, one at a time"
    made = client.bench.interleaved({**sides, one: client.call("cycle", "quicx", count, 1)}, runs=5)
    alone = made.pop(one)
    _against(client.bench, f"cycle with 4 workers, {_PREFETCH} prefetched", made, {"redis": 2.0})
    client.bench.record(
        "cycle with 4 workers, one at a time",
        "tasks/s",
        _rates(alone),
        peer=_rates(made["redis"]),
        peer_name="redis",
        ratio_of="ours/peer",
    )


def _latency(client: _Client) -> None:
    count = client.bench.sized(50_000, 500)
    sides = {name: client.call("submit", name, count, 1) for name in ("quicx", *_PEERS)}
    made = client.bench.interleaved(sides, runs=7)
    for figure in ("p50", "p99"):
        for peer in _PEERS:
            what = f"submit one after the other, {figure}"
            client.bench.record(
                what,
                "µs",
                [run[figure] for run in made["quicx"]],
                peer=[run[figure] for run in made[peer]],
                peer_name=peer,
                ratio_of="ours/peer",
                bar=at_most(1.0) if peer == "beanstalkd" else None,
                missed=_MISSED.get(what),
            )


def _python(client: _Client) -> None:
    count = client.bench.sized(400_000, 2_048)
    made = client.bench.interleaved(
        {
            "penstock": client.python(_PYTHON_OURS, "quicx", count),
            "the client in Rust": client.call("submit", "quicx", count, _WINDOW),
            "redis-py": client.python(_PYTHON_REDIS, "redis", count),
        },
        runs=5,
    )
    bars = {"the client in Rust": 0.5, "redis-py": 3.0}
    _against(client.bench, "submit from Python, 1,024 together", made, bars, ours="penstock")


def _journal(client: _Client) -> None:
    count = client.bench.sized(200_000, 2_000)
    slow = client.bench.sized(4_000, 200)
    made = client.bench.interleaved(
        {
            "quicx": client.call("submit", "quicx", count, _WINDOW, durable=True),
            "redis, everysec": client.call("submit", "redis", count, _WINDOW, durable=True),
            # It syncs for each task: as many as the others would take minutes.
            "beanstalkd, -f 0": client.call("submit", "beanstalkd", slow, _WINDOW, durable=True),
        },
        runs=5,
    )
    what = f"submit onto the disk, {_WINDOW:,} on their way"
    _against(client.bench, what, made, {"redis, everysec": 1.0, "beanstalkd, -f 0": 20.0})


_MISSED: dict[str, str] = {
    f"submit, {_WINDOW:,} on their way": (
        "With each end on a core of its own, 1,000,000 tasks: the daemon is busy from the first to the last, 0.53 "
        "µs a task, of which /proc/PID/stat gives 0.35 to itself and 0.18 to the kernel; Redis takes 0.63 to 0.92 "
        "µs. The client takes 0.14 µs for ours and 0.40 for Redis, so that it holds up neither. 1.5 times the "
        "fastest of Redis is 0.42 µs. By `perf record` of the core without sockets, the largest parts are frames, "
        "12 to 13 %, SUBMIT, 10, pages of the pool and of the table of tasks that are touched for the first time, "
        "10, types and their order, 5, the map of IDs, 4, the pool, 2."
    ),
    "submit one after the other, p50": (
        "With each end on a core of its own: 14.9 µs beside 19.7 of beanstalkd, since the daemon waits awake for "
        "the next request. Where both share their cores with others, both take 7.5 to 8.5 µs in the best runs, "
        "and waiting awake gains nothing."
    ),
    "submit one after the other, p99": (
        "With each end on a core of its own: 34 µs beside 37 of beanstalkd. Where other processes want both "
        "cores, a daemon that waits awake is preempted with the next request already there: 29 to 60 µs beside 16 "
        "to 53."
    ),
    f"submit onto the disk, {_WINDOW:,} on their way": (
        "A commit takes what came while the one before was under way, about half of the window: no more than 512 "
        "tasks for each fdatasync. With the 0.10 to 0.15 ms of a quiet disk that allows 3.4 to 5 million tasks a "
        "second, and the processor is the limit; with the 4 ms that it took beside other programs that write, "
        "128,000. Redis syncs once a second, in a thread that nothing waits for, and kept 500,000 to 750,000 "
        "there. With the journal on a disk in memory ours took up to 1.5 million."
    ),
}
