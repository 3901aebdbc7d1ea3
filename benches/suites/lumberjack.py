"""Lumberjack beside Elastic's go-lumber: the same writer, the same bytes.

The writer (`go-lumber blast`) sends windows that it made before, two on their way, and takes half of the machine: so
the bar for receiving is the receiver's CPU for each event. Both servers acknowledge everything that they have taken.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from benches.runner import Bar, Bench, at_least
from benches.runner.machine import REPOSITORY

# Bytes of an event, events of a window, zlib's level, connections.
_Case = tuple[int, int, int, int]
_CASES: list[_Case] = list(product((200, 1024), (50, 1024, 2048), (0, 3), (1, 4)))
# The bar of the spool is for these.
_LARGE = 2048
_TICKS = os.sysconf("SC_CLK_TCK")

# The shares are perf's, of events of 200 bytes in windows of 2,048 at level 0.
_MISSED = {
    "receive and drop": (
        "Most of what is left is the kernel's, which copies bytes from the socket for both, or zlib's, and at windows "
        "of 50 both wake a thread for each window."
    ),
    "receive into Arrow": (
        "go-lumber hands bytes on that it has not looked at. In ours 37 % of the CPU say whether each event is a JSON "
        "object (decision 9): 22 tokens, whose strings are searched with AVX2, in half the time that serde_json took; "
        "16 % go into frames and windows, 15 % into the kernel, 5 % into the column and its UTF-8, and 19 % into "
        "Python, where pyarrow takes each batch with its schema. Without JSON and Python it would be 44 % of what it "
        "is, and the bar met. In windows of 50 Python has 58 % of 1.65 µs for an event, so 48 µs for a batch: more "
        "than go-lumber takes for the whole window."
    ),
    "receive into the spool": (
        "go-lumber looks at nothing and writes nothing. In ours, with 4 connections, the kernel has 34 % of the CPU: "
        "25 % write records into the page cache and sync them, 9 % read sockets. 48 % decode frames, say whether each "
        "event is a JSON object, and hash it, 7 % make records, and 11 % copy bytes in memory. Kernel and copies "
        "alone are 0.2 of the 0.44 µs for an event, of 0.29 that go-lumber takes in all."
    ),
    "send 2048": (
        "To deflate a window of 2,048 events takes 0.19 ms of CPU with zlib-rs and 0.59 with Go's compress/flate; the "
        "rest is the same receiver for both, which has the same two cores."
    ),
}

# Says where it listens, and takes what comes in the way that its argument names.
_RECEIVER = """
import sys
import pyarrow as pa
from penstock import _core
from penstock.lumberjack._receiver import receive_options
way, folder = sys.argv[1:]
options = receive_options("127.0.0.1:0", tls=False, cert=None, key=None, client_ca=None, client_certificates="required",
    max_connections=16384, max_connections_per_address=None, max_bytes=256 << 20, max_age=None, frame_timeout=30.0,
    idle_timeout=None, keepalive=3.0, repeat_ack=False, pause=1.0, limits=None, metrics=None, state_dir=folder)
log = pa.struct([("level", pa.string()), ("offset", pa.int64())])
typed = pa.schema([("@timestamp", pa.timestamp("us", "UTC")), ("log", log), ("message", pa.string()),
    ("status", pa.int32())])
receiver = _core.LumberjackReceiver("127.0.0.1:0", options, typed if way == "typed" else None,
    folder if way == "spool" else None, way == "drop")
print("listening", receiver.address(), flush=True)
if way in ("arrow", "typed"):
    while (batch := receiver.next_batch(None)) is not None:
        rows = batch.record_batch().num_rows
        batch.ack()
else:
    sys.stdin.read()
"""

_SENDER = """
import json, sys, time
from penstock.lumberjack import Sender
address, window, count, size = sys.argv[1], *map(int, sys.argv[2:])
head = '{"@timestamp":"2026-01-01T00:00:00.000Z","log":{"level":"info","offset":123456},"message":"'
tail = '","status":200}'
event = (head + "x" * max(0, size - len(head) - len(tail)) + tail).encode()
events = [event] * count
began = time.perf_counter()
with Sender(address, protocol=2, window=window, compress=3) as sender:
    sender.send(events)
print(json.dumps({"sent": count, "seconds": time.perf_counter() - began}))
"""


@dataclass(frozen=True)
class _Server:
    """A receiver that runs."""

    address: str
    process: "subprocess.Popen[str]"

    def cpu(self) -> float:
        """Seconds of CPU so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def resident(self) -> int:
        """Bytes of memory."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def _serving(*command: str | Path) -> Iterator[_Server]:
    process = subprocess.Popen(
        [str(part) for part in command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        if process.stdout is None:
            raise RuntimeError("the server has no output")
        yield _Server(process.stdout.readline().split()[1], process)
    finally:
        process.kill()
        process.communicate()


@contextmanager
def _dropping() -> Iterator[_Server]:
    with (
        TemporaryDirectory(dir=REPOSITORY / "target") as folder,
        _serving(sys.executable, "-c", _RECEIVER, "drop", folder) as server,
    ):
        yield server


def _built() -> Path:
    folder = REPOSITORY / "benches" / "peers" / "go-lumber"
    program = REPOSITORY / "target" / "go-lumber"
    program.parent.mkdir(exist_ok=True)
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=folder, check=True)
    return program


class _Machine:
    """Runs both sides."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.go = _built()
        self.seconds = 0.2 if bench.quick else 0.7

    def blast(self, server: _Server, case: _Case, *options: str) -> dict[str, float]:
        """What a writer of so many bytes gets through, with the receiver's CPU for each event in µs."""
        size, window, level, connections = case
        arguments = ["-size", size, "-window", window, "-level", level, "-connections", connections]
        before = server.cpu()
        made: dict[str, float] = self.bench.json_of(
            self.go, "blast", "-to", server.address, "-seconds", str(self.seconds), *map(str, arguments), *options
        )
        made["rate"] = made["events"] / made["seconds"]
        made["cpu"] = (server.cpu() - before) * 1e6 / made["events"]
        return made

    def ours(self, way: str, case: _Case) -> dict[str, float]:
        """What our receiver does."""
        with (
            TemporaryDirectory(dir=REPOSITORY / "target") as folder,
            _serving(sys.executable, "-c", _RECEIVER, way, folder) as server,
        ):
            return self.blast(server, case)

    def theirs(self, case: _Case, *options: str) -> dict[str, float]:
        """What theirs does."""
        with _serving(self.go, "serve", "-v2", *options) as server:
            return self.blast(server, case)


def run(bench: Bench) -> None:
    """Receive, send, and hold many connections."""
    bench.use_extension()
    machine = _Machine(bench)
    for case in _CASES[:1] if bench.quick else _CASES:
        ways = {"receive and drop": ("drop", at_least(2.0)), "receive into Arrow": ("arrow", at_least(1.5))}
        if case[1] == _LARGE or bench.quick:
            ways["receive into the spool"] = ("spool", at_least(1.0))
        _receive(machine, case, ways)
    for size in (200,) if bench.quick else (200, 1024):
        _receive(machine, (size, _LARGE, 0, 1), {"JSON into typed columns": ("typed", at_least(4.0))}, "-decode")
    for window in (50, _LARGE):
        _send(machine, window)
    _many(machine)


def _receive(machine: _Machine, case: _Case, ways: dict[str, tuple[str, Bar]], *options: str) -> None:
    def ours(way: str) -> Callable[[], dict[str, float]]:
        return lambda: machine.ours(way, case)

    sides = {what: ours(way) for what, (way, _) in ways.items()}
    # Each run is of processes of its own, so that nothing is to be warmed up.
    peer = {"go-lumber": lambda: machine.theirs(case, *options)}
    made = machine.bench.interleaved({**sides, **peer}, runs=3, warm_up=False)
    size, window, level, connections = case
    rates = {side: sorted(run["rate"] for run in runs)[len(runs) // 2] for side, runs in made.items()}
    for what, (_, bar) in ways.items():
        machine.bench.record(
            f"{what}, {size} B, windows of {window}, level {level}, {connections} connections",
            "µs of CPU an event",
            [run["cpu"] for run in made[what]],
            peer=[run["cpu"] for run in made["go-lumber"]],
            peer_name="go-lumber",
            ratio_of="peer/ours",
            bar=bar,
            note=f"Events a second: {rates[what]:,.0f}; go-lumber {rates['go-lumber']:,.0f}.",
            missed=_MISSED.get(what),
        )


def _send(machine: _Machine, window: int) -> None:
    count = machine.bench.sized(200_000, 2_000)

    # Both send to our receiver, because go-lumber's takes longer to inflate a window than either takes to deflate it.
    def ours() -> float:
        with _dropping() as server:
            made = machine.bench.json_of(sys.executable, "-c", _SENDER, server.address, str(window), str(count), "200")
        return float(made["sent"] / made["seconds"])

    def theirs() -> float:
        options = ["-window", str(window), "-level", "3", "-async", "2", "-count", str(count), "-size", "200"]
        with _dropping() as server:
            made = machine.bench.json_of(machine.go, "send", "-to", server.address, *options)
        return float(made["sent"] / made["seconds"])

    machine.bench.pair(
        f"send, 200 B, level 3, windows of {window}",
        "events/s",
        ours=ours,
        peer=theirs,
        peer_name="go-lumber",
        ratio_of="ours/peer",
        bar=at_least(2.0),
        runs=3,
        missed=_MISSED.get(f"send {window}"),
    )


def _many(machine: _Machine) -> None:
    connections = machine.bench.sized(1_000, 20)
    with (
        TemporaryDirectory(dir=REPOSITORY / "target") as folder,
        _serving(sys.executable, "-c", _RECEIVER, "spool", folder) as server,
    ):
        before = server.resident()
        machine.seconds = 0.5 if machine.bench.quick else 8.0
        made = machine.blast(server, (1024, 1, 0, connections), "-rate", "1")
        each = max(0, server.resident() - before) / connections
    machine.bench.record(
        f"{connections} connections of 1 KiB/s into the spool, p99 until acknowledged", "ms", [made["p99"] * 1e3]
    )
    machine.bench.record(f"{connections} connections of 1 KiB/s, memory of each", "KiB", [each / 1024])
