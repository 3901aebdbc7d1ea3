"""The sink of the demo: ``penstock pipestream serve`` in a separate process."""

import re
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.errors import Error

__all__ = ["SinkError", "SinkProcess"]

_READY = re.compile(rb"listening (\S+) fingerprint sha256:([0-9a-f]{64})\n")
_METRICS = re.compile(rb"metrics at http://(\S+)/metrics")
_START_SECONDS = 30
_STOP_SECONDS = 30


class SinkError(Error):
    """The sink did not start, or did not stop as it should."""


class SinkProcess:
    """A sink that runs during the ``with`` block, on a free port of the loopback interface.

    Leaving the block always stops the sink and waits for its end.
    """

    def __init__(self, folder: Path, events: Path, log: Path) -> None:
        self._command = [sys.executable, "-m", "penstock", "pipestream", "serve", "--listen", "127.0.0.1:0"]
        self._command += ["--sink", str(folder), "--events", str(events), "--metrics", "127.0.0.1:0"]
        self._log = log
        self.address = ""
        """The sink's address, ``host:port``, for ``penstock.spark.dehydrate``."""
        self.fingerprint = ""
        """The SHA-256 of the sink's certificate, in hex."""
        self.metrics = ""
        """The address of the sink's metrics, ``host:port``."""

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, bufsize=0
            )
        try:
            self._read_ready_line()
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        code = self._stop()
        if error is None and code != 0:
            raise SinkError(f"the sink ended with exit code {code}; see {self._log}", "io")

    @property
    def pid(self) -> int:
        """The ID of the sink's process."""
        return self._process.pid

    def _read_ready_line(self) -> None:
        output = self._process.stdout
        if output is None:
            raise SinkError("the sink has no stdout", "io")
        line = b""
        deadline = time.monotonic() + _START_SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while not line.endswith(b"\n") and selector.select(max(0.0, deadline - time.monotonic())):
                data = output.read(4096)
                if not data:
                    break
                line += data
        ready = _READY.fullmatch(line)
        if ready is None:
            raise SinkError(f"the sink was not ready within {_START_SECONDS} s; see {self._log}", "io")
        self.address, self.fingerprint = ready[1].decode(), ready[2].decode()
        # The address of the metrics is logged before the line on stdout.
        metrics = _METRICS.search(self._log.read_bytes())
        if metrics is None:
            raise SinkError(f"the sink does not report the address of its metrics; see {self._log}", "io")
        self.metrics = metrics[1].decode()

    def _stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
        finally:
            if self._process.stdout is not None:
                self._process.stdout.close()
