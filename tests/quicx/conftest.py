"""What the tests of Quicx share: the pen of a peer that shares no code, and daemons in processes of their own."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "conformance" / "quicx"))


@pytest.fixture
def start(tmp_path):
    """Start a daemon by the command line; give its process and its address."""
    running = []

    def begin(*options: str):
        command = [sys.executable, "-m", "penstock", "quicx", "start", "--listen", "127.0.0.1:0", *options]
        process = subprocess.Popen(command, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        running.append(process)
        line = process.stdout.readline()
        assert line.startswith("listening "), (line, process.stderr.read())
        return process, line.split()[1]

    yield begin
    for process in running:
        process.kill()
        process.communicate(timeout=30)
