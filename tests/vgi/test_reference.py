"""The reference's own tests: with our caller and our worker, and with one of each in both directions."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUITE = Callable[..., dict[str, int]]
# Of about 145; those that are skipped say so for a transport.
MANY = 130
_MAIN = "from {}._cli import main; main()"


def _with(folder: Path) -> dict[str, str]:
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH", str(ROOT / "python"))])])
    return {"PYTHONPATH": path, "PENSTOCK_VGI_DIALECT": "0.10", "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.mark.parametrize("transport", ["pipe", "unix"])
def test_our_caller_and_our_worker_pass_them(run_suite: SUITE, translated: Path, transport: str) -> None:
    worker = [sys.executable, "-c", _MAIN.format("vgi_conformance")]
    counts = run_suite(sys.executable, "vgi_conformance", transport, worker, **_with(translated))
    assert counts["passed"] >= MANY, counts


@pytest.mark.parametrize("transport", ["pipe", "unix", "shm"])
def test_our_caller_passes_them_with_the_references_worker(
    run_suite: SUITE, translated: Path, reference: Path, transport: str
) -> None:
    worker = ["env", "-u", "PYTHONPATH", str(reference), "-c", _MAIN.format("vgi_rpc.conformance")]
    spoils = {"SPOILS": "1"} if transport in ("pipe", "shm") else {}
    counts = run_suite(sys.executable, "vgi_conformance", transport, worker, **_with(translated), **spoils)
    assert counts["passed"] >= MANY, counts


@pytest.mark.parametrize("transport", ["pipe", "unix", "shm"])
def test_the_references_caller_passes_them_with_our_worker(
    run_suite: SUITE, translated: Path, reference: Path, transport: str
) -> None:
    path = _with(translated)["PYTHONPATH"]
    worker = ["env", f"PYTHONPATH={path}", sys.executable, "-c", _MAIN.format("vgi_conformance")]
    counts = run_suite(reference, "vgi_rpc.conformance", transport, worker, PENSTOCK_VGI_DIALECT="0.10")
    assert counts["passed"] >= MANY, counts
