"""The program under test as a child process, whichever it is.

PIPESTREAM_SERVE, PIPESTREAM_SEND, PIPESTREAM_RECEIVE and PIPESTREAM_OWN name the commands; penstock's are the default.
What they must take and print is in docs/conformance.md.
"""

import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .reactor import Reactor

__all__ = ["SEND", "SERVE", "Own", "Receive", "Send", "Serve", "environment"]

PENSTOCK = shlex.join([sys.executable, "-m", "penstock", "pipestream"])
SERVE = shlex.split(os.environ.get("PIPESTREAM_SERVE", f"{PENSTOCK} serve"))
SEND = shlex.split(os.environ.get("PIPESTREAM_SEND", f"{PENSTOCK} send"))
# Two programs of a few lines, because penstock's commands never wait with an entity.
HERE = Path(__file__).parent
RECEIVE = shlex.split(
    os.environ.get("PIPESTREAM_RECEIVE", shlex.join([sys.executable, str(HERE / "penstock_receives.py")]))
)
OWN = shlex.split(os.environ.get("PIPESTREAM_OWN", shlex.join([sys.executable, str(HERE / "penstock_owns.py")])))

START = 60.0
STOP = 30.0
READY = re.compile(r"listening (\S+):(\d+) fingerprint sha256:([0-9a-f]{64})\n")


def environment(home: Path) -> dict[str, str]:
    """What a child sees: certificates and other state of its own, below `home`."""
    places = ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")
    inherited = {name: value for name, value in os.environ.items() if name != "PENSTOCK_STATE"}
    return inherited | dict.fromkeys(places, str(home))


class Listening:
    """A server of ours, of any kind, that says where it listens."""

    def __init__(self, folder: Path, command: Sequence[str], home: Path | None) -> None:
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.errors = folder / "stderr.txt"
        # Port 0 picks a free one.
        listen = [] if "--listen" in command else ["--listen", "127.0.0.1:0"]
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [*command, *listen],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment(home or folder),
            )
        self.ready = self._first_line()
        match = READY.fullmatch(self.ready)
        assert match, f"not a ready line: {self.ready!r}; {self.complaint()}"
        self.address = (match[1], int(match[2]))
        self.fingerprint = match[3]

    def _first_line(self) -> str:
        stdout, deadline, line = self.process.stdout, time.monotonic() + START, b""
        assert stdout is not None
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"no ready line within {START} s; {self.complaint()}"
            data = os.read(stdout.fileno(), 4096)
            assert data, f"ended without a ready line; {self.complaint()}"
            line += data
        return line.decode()

    def complaint(self) -> str:
        return f"exit {self.process.poll()}, stderr: {self.errors.read_text('utf-8', 'replace')[-2000:]}"

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def memory(self, peak: bool = False) -> int:
        """Bytes that the process holds in memory, or held at most since `forget_peak`."""
        name = "VmHWM" if peak else "VmRSS"
        text = Path(f"/proc/{self.process.pid}/status").read_text("ascii")
        match = re.search(rf"^{name}:\s*(\d+) kB$", text, re.MULTILINE)
        assert match
        return int(match[1]) * 1024

    def forget_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5", "ascii")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(STOP)

    def terminate(self) -> None:
        """SIGTERM."""
        self.process.send_signal(signal.SIGTERM)

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        if self.alive:
            self.terminate()
        return self.wait()

    def wait(self) -> int:
        """The exit code of a server that was told to stop."""
        try:
            return self.process.wait(STOP)
        finally:
            if self.alive:
                self.kill()


class Serve(Listening):
    """A server with a sink folder and an events file."""

    def __init__(self, folder: Path, *options: str, sink: Path | None = None, home: Path | None = None) -> None:
        self.sink = sink or folder / "sink"
        self.events = folder / "events.jsonl"
        super().__init__(folder, [*SERVE, "--sink", str(self.sink), "--events", str(self.events), *options], home)


class Receive(Listening):
    """A server without a sink, which does with each entity what its metadata `conformance` says."""

    def __init__(self, folder: Path, *options: str) -> None:
        super().__init__(folder, [*RECEIVE, *options], None)


class Send:
    """A client that sends files."""

    def __init__(self, reactor: Reactor, home: Path, address: tuple[str, int], *arguments: str | Path) -> None:
        self.reactor = reactor
        command = [*SEND, f"{address[0]}:{address[1]}", *map(str, arguments)]
        self.output = (home / "send-stdout.txt", home / "send-stderr.txt")
        with self.output[0].open("wb") as stdout, self.output[1].open("wb") as stderr:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=environment(home)
            )

    @property
    def stderr(self) -> str:
        return self.output[1].read_text("utf-8", "replace")

    @property
    def done(self) -> bool:
        return self.process.poll() is not None

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def exits(self, code: int | Sequence[int], timeout: float = 60.0) -> None:
        """The process ends within `timeout` with this code; connections of the test go on meanwhile."""
        codes = [code] if isinstance(code, int) else list(code)
        self.reactor.run(lambda: self.done, timeout)
        assert self.done, f"still running after {timeout} s; stderr: {self.stderr[-2000:]}"
        assert self.process.returncode in codes, f"exit {self.process.returncode}; stderr: {self.stderr[-2000:]}"

    def wait(self, until: Callable[[], bool], what: str, timeout: float = START) -> None:
        self.reactor.run(lambda: until() or self.done, timeout)
        assert until(), f"{what} did not come; exit {self.process.poll()}, stderr: {self.stderr[-2000:]}"

    def end(self) -> None:
        if not self.done:
            self.process.kill()
        self.process.wait(STOP)


class Own:
    """A client that is told on its standard input what to do, once for each line, and says what has become of it."""

    def __init__(self, reactor: Reactor, home: Path) -> None:
        self.reactor = reactor
        self.errors = home / "own-stderr.txt"
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                OWN, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment(home)
            )
        self.idle = True
        self._said = b""

    def begin(self, address: tuple[str, int], fingerprint: str, **order: Any) -> None:
        """Connects there, and sends a single entity, or `children` below one with a `policy`."""
        assert self.idle
        assert self.process.stdin is not None
        self.idle = False
        server = f"{address[0]}:{address[1]}"
        defaults = {"children": None, "policy": None, "resume": 0, "survive": None}
        line = json.dumps({"server": server, "fingerprint": fingerprint} | defaults | order)
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, timeout: float = START) -> dict[str, Any]:
        """What it says; connections of the test go on meanwhile."""
        self.reactor.run(self._has_said, timeout)
        assert self._has_said(), f"no answer; exit {self.process.poll()}, {self.errors.read_text('utf-8', 'replace')}"
        line, _, self._said = self._said.partition(b"\n")
        self.idle = True
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _has_said(self) -> bool:
        stdout = self.process.stdout
        assert stdout is not None
        while select.select([stdout], [], [], 0)[0]:
            data = os.read(stdout.fileno(), 65_536)
            if not data:
                break
            self._said += data
        return b"\n" in self._said

    def end(self) -> None:
        self.process.kill()
        self.process.wait(STOP)
