"""Scaling: what an entity, a byte and a session cost.

The core's part is run on the real state machines under the testkit's clock (`benches/rust/src/scaling`); the ends'
part over QUIC into a folder sink in a process of its own. `docs/scaling.md` is made from these figures.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benches.runner import Bench
from benches.runner.machine import REPOSITORY


def run(bench: Bench) -> None:
    bench.use_extension()
    program = bench.program("scaling")
    _core(bench, program)
    with TemporaryDirectory(dir=program.parent) as folder:
        _disk(bench, program, folder)
    _ends(bench, "1 KiB", 1 << 10, bench.sized(20_000, 50))
    _ends(bench, "4 MiB", 4 << 20, bench.sized(100, 2))
    _sessions(bench)


def _core(bench: Bench, program: Path) -> None:
    # Nobody waits for 10^7 in a quick run.
    for exponent in (3, 4, 5, 6, 7)[: bench.sized(5, 1)]:
        made = bench.json_of(program, "flat", str(10**exponent))
        _both(bench, f"core, root scope, 10^{exponent} entities", made)
        _say(bench, f"core, heap kept after 10^{exponent} entities", "bytes", made["bytes_kept"])
    for name in ("announce", "status", "header"):
        _say(bench, f"wire, {name}", "bytes/entity", made[f"{name}_bytes"])
    made = bench.json_of(program, "documents", str(bench.sized(1_000_000, 1_000)))
    _both(bench, "core, documents of 10 children", made)
    for name in ("announce", "status", "header"):
        _say(bench, f"wire, documents, {name}", "bytes/entity", made[f"{name}_bytes"])
    made = bench.json_of(program, "fleet", "1000", str(bench.sized(10_000, 100)))
    _both(bench, f"core, 1,000 sessions at once, {made['entities']:,} entities", made)
    _say(bench, "core, an idle session", "bytes", made["idle_bytes"])
    _say(bench, "core, a busy session", "bytes", made["busy_bytes"])
    made = bench.json_of(program, "open", str(bench.sized(65_536, 1_000)))
    _say(bench, f"core, {made['open']:,} open entities", "bytes/entity, both ends", made["bytes_both_ends"])
    for parents, children in ((1_000_000, 0), (100_000, 10), (1_000, 1_000)):
        made = bench.json_of(program, "manifest", str(bench.sized(parents, 100)), str(children))
        _say(bench, f"manifest, {children:,} children", "bytes/open parent", made["bytes"])
        _say(bench, f"manifest, {children:,} children, opened and resolved", "ns/parent", made["total_ns"])
    _say(bench, "manifest, refuses at", "open parents", made["refused_at"])
    made = bench.json_of(program, "ids", str(bench.sized(4_294_967_292, 1_000_000)))
    _say(bench, "IDs walked", "IDs", made["ids"])
    _say(bench, "IDs, wraps", "times", made["wraps"])
    _say(bench, "IDs, assigned and resolved", "ns/ID", made["ns"])
    _say(bench, "SHA-256", "ns/byte", bench.json_of(program, "hash", str(bench.sized(2 << 30, 1 << 20)))["ns"])


def _disk(bench: Bench, program: Path, folder: str) -> None:
    made = bench.json_of(program, "disk", str(bench.sized(2_000, 20)), folder)
    _say(bench, "disk, a file made durable by itself", "µs/file", made["one_us"])
    _say(bench, "disk, a file of a batch", "µs/file", made["batch_us"])


def _ends(bench: Bench, label: str, size: int, count: int) -> None:
    """CPU at both ends, over QUIC, from a Python sender into a folder: rows in memory to files that are durable."""
    from penstock.pipestream import Session

    with TemporaryDirectory(dir=REPOSITORY / "target") as folder, _sink(folder) as sink:
        payload = bytes(size)
        before, wall = sink.used(), time.perf_counter()
        cpu = time.process_time()
        with Session.connect(sink.address, fingerprint=sink.fingerprint) as session:
            for _ in range(count):
                session.send(payload)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        after = sink.used()
        (log,) = Path(folder).glob("*/entities.jsonl")
        _say(bench, f"ends, {label}, sender", "µs CPU/entity", cpu * 1e6 / count)
        taken = after["cpu_seconds"] - before["cpu_seconds"]
        _say(bench, f"ends, {label}, sink", "µs CPU/entity", taken * 1e6 / count)
        _say(bench, f"ends, {label}, by the clock", "µs/entity", wall * 1e6 / count)
        _say(bench, f"ends, {label}, entities.jsonl", "bytes/entity", log.stat().st_size / count)
        inodes = sum(1 for _ in Path(folder).rglob("*"))
        _say(bench, f"ends, {label}, files and folders", "inodes/entity", inodes / count)
        _say(bench, f"ends, {label}, memory of the sink", "MiB", after["most_rss_mib"])


def _sessions(bench: Bench) -> None:
    """What a session costs a sink while it is open and idle."""
    from penstock.pipestream import Session

    count = bench.sized(200, 5)
    with TemporaryDirectory(dir=REPOSITORY / "target") as folder, _sink(folder) as sink, ExitStack() as sessions:
        sessions.enter_context(Session.connect(sink.address, fingerprint=sink.fingerprint)).send(b"x").wait()
        before = sink.used()
        for _ in range(count):
            session = sessions.enter_context(Session.connect(sink.address, fingerprint=sink.fingerprint))
            session.send(b"x").wait()
        after = sink.used()
        for key, name, unit, factor in (
            ("rss_mib", "memory", "KiB/session", 1024),
            ("files_open", "file descriptors", "files/session", 1),
            ("cpu_seconds", "handshake and one entity", "ms CPU/session", 1000),
        ):
            _say(bench, f"sink, an open session, {name}", unit, (after[key] - before[key]) * factor / count)


class _Sink:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        said = self._line()
        self.address: str = said["address"]
        self.fingerprint: str = said["fingerprint"]

    def used(self) -> dict[str, float]:
        if self._process.stdin is None:
            raise RuntimeError("the sink has no standard input")
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        used: dict[str, float] = self._line()
        return used

    def _line(self) -> Any:
        if self._process.stdout is None:
            raise RuntimeError("the sink has no standard output")
        return json.loads(self._process.stdout.readline())


@contextmanager
def _sink(folder: str) -> Iterator[_Sink]:
    command = [sys.executable, "-m", "benches.suites._sink", folder]
    with subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield _Sink(process)
        if process.stdin is not None:
            process.stdin.close()


def _both(bench: Bench, name: str, made: dict[str, float]) -> None:
    _say(bench, f"{name}, sender", "ns/entity", made["client_ns"])
    _say(bench, f"{name}, receiver", "ns/entity", made["server_ns"])


def _say(bench: Bench, name: str, unit: str, value: float) -> None:
    bench.record(name, unit, [value])
