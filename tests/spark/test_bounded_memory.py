"""A document is never held whole anywhere: processes grow by a small part of it, whatever the plan.

The stages of the plans run one after the other without Spark, in a process of their own; the sink is in another one.
"""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not Path("/proc/self/clear_refs").exists(), reason="NOT TESTED: memory; it is read from Linux's /proc"
    ),
]

MIB = 1 << 20
SIZE = 4096 if os.environ.get("PENSTOCK_LONG_TESTS") else 384
"""MiB of the document; most of it is one member."""
MEMBERS = 16
GROWTH = 128
"""MiB that a process may grow by."""

STAGES = """
import json, sys
import pyarrow as pa
import plan_samples
from plan_samples import divided, gathered, sent, resident, forget_peak
from penstock.spark import dehydrate

plan, address, fingerprint, receipts, small, large = sys.argv[1:]
plan_samples.GROUP = 32 << 20
apart = dehydrate(address, fingerprint=fingerprint, receipts=receipts)

def run(path):
    if plan == "task":
        return sum(batch.num_rows for batch in apart(iter([pa.RecordBatch.from_pydict({"path": [path]})])))
    return len(gathered(sent(divided([path], apart), apart), apart))

run(small)
forget_peak()
before = resident("VmRSS")
rows = run(large)
print(json.dumps({"rows": rows, "growth": resident("VmHWM") - before}))
"""

SINK = """
import sys
from plan_samples import forget_peak, resident
from penstock.pipestream import Server

with Server(sink=sys.argv[1], state_dir=sys.argv[2], max_payload=1 << 40) as server:
    print(server.address, server.fingerprint, flush=True)
    sys.stdin.readline()
    forget_peak()
    before = resident("VmRSS")
    print("ready", flush=True)
    sys.stdin.readline()
    print(resident("VmHWM") - before, flush=True)
"""


def sparse_tar(path: Path, sizes: list[int]) -> None:
    """A tar of zeros that takes no room on the disk."""
    with path.open("wb") as file:
        for number, size in enumerate(sizes):
            member = tarfile.TarInfo(f"{number}.bin")
            member.size = size
            file.write(member.tobuf(tarfile.USTAR_FORMAT if size < 8 << 30 else tarfile.GNU_FORMAT))
            file.seek(size, os.SEEK_CUR)
        file.write(bytes(1024))


@pytest.mark.parametrize("plan", ["task", "shuffle"])
def test_no_process_grows_by_a_large_document(tmp_path, plan):
    sizes = [SIZE * MIB // 2, *[SIZE * MIB // 2 // MEMBERS] * MEMBERS]
    sparse_tar(tmp_path / "small.tar", [2 * MIB] * 40)
    sparse_tar(tmp_path / "large.tar", sizes)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parent)])}
    command = [sys.executable, "-c", SINK, str(tmp_path / "sink"), str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, **pipes) as sink:
        try:
            address, fingerprint = sink.stdout.readline().split()
            say(sink)
            arguments = [plan, address, fingerprint, str(tmp_path / "receipts")]
            documents = [str(tmp_path / f"{name}.tar") for name in ("small", "large")]
            run = subprocess.run(
                [sys.executable, "-c", STAGES, *arguments, *documents],
                env=environment, capture_output=True, text=True, timeout=580, check=False,
            )  # fmt: skip
            assert run.returncode == 0, run.stderr
            sink_growth = int(say(sink)) // MIB
        finally:
            sink.kill()
    told = json.loads(run.stdout)
    assert told["rows"] == 1 + len(sizes)
    assert (told["growth"] // MIB < GROWTH, sink_growth < GROWTH) == (True, True), (told, sink_growth)
    # The large member came through whole.
    assert max(file.stat().st_size for file in (tmp_path / "sink").rglob("*") if file.is_file()) == sizes[0]


def say(process: "subprocess.Popen[str]") -> str:
    """Tell it to go on, and give its answer."""
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline()
