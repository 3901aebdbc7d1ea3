"""Kills producers, workers and the daemon of a queue with a journal at random, under load, and counts what came of it.

Every task that was acknowledged must be done at least once. Tasks that were done more than once are counted: their
worker or its daemon was killed between the work and the record of it.

    python scripts/drill_quicx.py [KILLS] [SEED]
"""

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock.errors import QuicxError
from penstock.quicx import Producer

_DAEMON = """
import sys
from penstock.quicx import Daemon
daemon = Daemon(sys.argv[1], journal="journal", task_timeout=5, max_attempts=1000)
print(daemon.address, flush=True)
daemon.wait_for_stop()
daemon.close(5)
"""
# The acknowledgement is written down when it is there, so whoever dies before has acknowledged nothing.
_PRODUCER = """
import itertools, os, sys, time
from penstock.errors import QuicxError
from penstock.quicx import Producer
numbers = itertools.count()
with open(f"acked-{os.getpid()}", "a", buffering=1) as acked:
    while True:
        try:
            with Producer(sys.argv[1]) as producer:
                while True:
                    names = [f"{os.getpid()}-{next(numbers)}" for _ in range(50)]
                    producer.submit_many("work", [name.encode() for name in names])
                    acked.write("".join(f"{name}\\n" for name in names))
                    time.sleep(0.01)
        except QuicxError:
            time.sleep(0.05)
"""
_WORKER = """
import os, sys, time
from penstock.errors import QuicxError
from penstock.quicx import Worker
done = os.open(f"done-{os.getpid()}", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
worker = Worker(sys.argv[1], threads=4)
worker.task("work")(lambda payload: os.write(done, payload + b"\\n"))
while True:
    try:
        worker.run()
    except QuicxError:
        time.sleep(0.05)
"""
_PROGRAMS = {"daemon": _DAEMON, "producer": _PRODUCER, "worker": _WORKER}


class _Drill:
    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.random = random.Random(seed)  # noqa: S311 - whom to kill is no secret
        self.kills: Counter[str] = Counter()
        self.processes: list[tuple[str, subprocess.Popen[str]]] = []
        self.address = "127.0.0.1:0"
        for kind in ("daemon", "producer", "producer", "worker", "worker"):
            self.start(kind)

    def start(self, kind: str) -> None:
        command = [sys.executable, "-c", _PROGRAMS[kind], self.address]
        process = subprocess.Popen(
            command, cwd=self.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.processes.append((kind, process))
        if kind == "daemon" and process.stdout is not None:
            self.address = process.stdout.readline().strip()
            if not self.address:
                sys.exit("drill: the daemon did not start again")

    def kill(self) -> None:
        kind, process = self.processes.pop(self.random.randrange(len(self.processes)))
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
        self.kills[kind] += 1
        self.start(kind)

    def finish(self) -> None:
        """Let workers do what is left, then end all."""
        for kind, process in self.processes:
            if kind == "producer":
                process.kill()
                process.wait(timeout=30)
        with Producer(self.address) as monitor:
            late = time.monotonic() + 120
            # A task comes back within 5 s, and then waits.
            quiet = 0
            while quiet < 60 and time.monotonic() < late:
                stats = monitor.stats()
                busy = stats.queue_depth > 0 or stats.workers_idle < stats.workers_total or stats.pmad_bytes_used > 0
                quiet = 0 if busy else quiet + 1
                time.sleep(0.1)
        for _, process in self.processes:
            process.kill()
            process.wait(timeout=30)

    def names(self, kind: str) -> Counter[str]:
        """Count the whole lines of all files of a kind."""
        found: Counter[str] = Counter()
        for path in self.folder.glob(f"{kind}-*"):
            lines = path.read_text().split("\n")
            found.update(lines[:-1])
        return found


def _drill(kills: int, seed: int) -> int:
    with TemporaryDirectory() as folder:
        drill = _Drill(Path(folder), seed)
        for _ in range(kills):
            time.sleep(drill.random.uniform(0.05, 0.5))
            drill.kill()
        drill.finish()
        acked, done = drill.names("acked"), drill.names("done")
    lost = [name for name in acked if name not in done]
    rows = {
        "killed": ", ".join(f"{count} times a {kind}" for kind, count in sorted(drill.kills.items())),
        "acknowledged": len(acked),
        "done": len(done),
        "done and not acknowledged": sum(1 for name in done if name not in acked),
        "done more than once": sum(1 for count in done.values() if count > 1),
        "lost": len(lost),
    }
    for name, value in rows.items():
        print(f"{name:<28}{value}")
    return 1 if lost or not acked else 0


if __name__ == "__main__":
    try:
        sys.exit(_drill(int(sys.argv[1]) if len(sys.argv) > 1 else 100, int(sys.argv[2]) if len(sys.argv) > 2 else 1))
    except QuicxError as error:
        sys.exit(f"drill: {error}")
