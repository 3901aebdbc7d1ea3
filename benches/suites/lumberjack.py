"""Lumberjack beside Elastic's go-lumber: the same writer, the same octets.

The writer (`go-lumber blast`) sends windows that it made before, two on their way, and takes half of the machine: so
the bar for receiving is the receiver's CPU for each event. Both servers acknowledge everything that they have taken.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benches.runner import Bar, Bench, at_least
from benches.runner.machine import REPOSITORY

# Octets of an event, events of a window, zlib's level, connections.
_CASES = [
    (200, 50, 0, 1),
    (200, 2048, 0, 1),
    (200, 2048, 3, 1),
    (200, 1024, 3, 4),
    (1024, 2048, 0, 4),
    (1024, 2048, 3, 1),
]
_TICKS = os.sysconf("SC_CLK_TCK")

_MISSED = {
    "receive into Arrow": (
        "go-lumber takes 0.21 µs of CPU for an event of 200 octets and looks at nothing, so the bar is 0.14. Of our "
        "0.34 it takes 0.09 to receive, 0.13 to see that the event is a JSON object (serde_json, which makes nothing "
        "of it; a scanner of eight octets at a time took 0.11, jiter 0.21), 0.02 that it is UTF-8, and 0.1 to copy it "
        "into its column, to make a batch of each window and to hand it to Python. Without a look at JSON the rest "
        "would meet the bar barely, and could not tag a document that is broken (decision 9)."
    ),
    "receive into the spool": (
        "go-lumber takes 0.22 µs of CPU for an event of 200 octets, looks at nothing and writes nothing. Ours takes "
        "0.6: 0.3 as into Arrow, 0.02 for the hash by which what is sent again is known, 0.05 to put a record "
        "together with its hash, and a third in the kernel, which copies the octets from the socket and into the page "
        "cache, and writes them to the disk at each fdatasync. The kernel alone takes what go-lumber takes in all."
    ),
    "send 2048": (
        "To deflate a window of 2,048 events takes 0.39 ms of CPU with zlib-rs and 0.64 with Go's compress/flate, 1.65 "
        "times as long, and both make 6.6 KB of it. Two windows are deflated side by side; on two cores the receiver, "
        "which inflates a window in 0.2 ms, and the Python that gives the events share them."
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
    max_connections=16384, max_octets=256 << 20, max_age=None, frame_timeout=30.0, idle_timeout=None, keepalive=3.0,
    repeat_ack=False, pause=1.0, limits=None, metrics=None, state_dir=folder)
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
        """Octets of memory."""
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
        self.seconds = 0.2 if bench.quick else 1.0

    def blast(self, server: _Server, case: tuple[int, int, int, int], *options: str) -> dict[str, float]:
        """What a writer of so many octets gets through, with the receiver's CPU for each event in µs."""
        size, window, level, connections = case
        arguments = ["-size", size, "-window", window, "-level", level, "-connections", connections]
        before = server.cpu()
        made: dict[str, float] = self.bench.json_of(
            self.go, "blast", "-to", server.address, "-seconds", str(self.seconds), *map(str, arguments), *options
        )
        made["rate"] = made["events"] / made["seconds"]
        made["cpu"] = (server.cpu() - before) * 1e6 / made["events"]
        return made

    def ours(self, way: str, case: tuple[int, int, int, int]) -> dict[str, float]:
        """What our receiver does."""
        with (
            TemporaryDirectory(dir=REPOSITORY / "target") as folder,
            _serving(sys.executable, "-c", _RECEIVER, way, folder) as server,
        ):
            return self.blast(server, case)

    def theirs(self, case: tuple[int, int, int, int], *options: str) -> dict[str, float]:
        """What theirs does."""
        with _serving(self.go, "serve", "-v2", *options) as server:
            return self.blast(server, case)


def run(bench: Bench) -> None:
    """Receive, send, and hold many connections."""
    bench.use_extension()
    machine = _Machine(bench)
    for case in _CASES[:1] if bench.quick else _CASES:
        _receive(machine, "receive and drop", "drop", case, at_least(2.0))
    for case in [] if bench.quick else [(200, 2048, 0, 1), (1024, 2048, 3, 1)]:
        _receive(machine, "receive into Arrow", "arrow", case, at_least(1.5))
    _receive(machine, "JSON into typed columns", "typed", (200, 2048, 0, 1), at_least(4.0), "-decode")
    _receive(machine, "receive into the spool", "spool", (200, 2048, 0, 4), at_least(1.0))
    for window in (50, 2048):
        _send(machine, window)
    _many(machine)


def _receive(machine: _Machine, what: str, way: str, case: tuple[int, int, int, int], bar: Bar, *options: str) -> None:
    sides: dict[str, Callable[[], dict[str, float]]] = {
        "penstock": lambda: machine.ours(way, case),
        "go-lumber": lambda: machine.theirs(case, *options),
    }
    made = machine.bench.interleaved(sides, runs=3)
    size, window, level, connections = case
    rates = {side: [run["rate"] for run in runs] for side, runs in made.items()}
    middle = {side: sorted(values)[len(values) // 2] for side, values in rates.items()}
    machine.bench.record(
        f"{what}, {size} B, windows of {window}, level {level}, {connections} connections",
        "µs of CPU an event",
        [run["cpu"] for run in made["penstock"]],
        peer=[run["cpu"] for run in made["go-lumber"]],
        peer_name="go-lumber",
        ratio_of="peer/ours",
        bar=bar,
        note=f"Events a second: {middle['penstock']:,.0f}; go-lumber {middle['go-lumber']:,.0f}.",
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
