"""The daemon that is met: that of PENSTOCK_QUICX=HOST:PORT, or one of ours in a process of its own.

One that is met by its address must be for this alone: empty, with no limits on types, and with its defaults.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@dataclass(frozen=True)
class Met:
    """A daemon."""

    address: str
    process: int | None
    """Its process, where it is ours."""

    def resident(self) -> int:
        """Bytes of its memory."""
        fields = Path(f"/proc/{self.process}/status").read_text().split("VmRSS:")[1].split()
        return int(fields[0]) << 10


@pytest.fixture(scope="module")
def met(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Met]:
    given = os.environ.get("PENSTOCK_QUICX")
    if given is not None:
        yield Met(given, None)
        return
    command = [sys.executable, "-m", "penstock", "quicx", "start", "--listen", "127.0.0.1:0"]
    command += ["--pool-bytes", str(2 << 20)]
    folder = tmp_path_factory.mktemp("daemon")
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=log)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("listening "), (line, (folder / "log").read_text())
        yield Met(line.split()[1], process.pid)
        process.terminate()
        assert process.wait(60) == 0
