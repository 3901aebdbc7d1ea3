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
# The reference's own command needs another web server.
_HTTP = (
    "from penstock.vgi import RpcServer; from penstock.vgi.http import serve_http; from vgi_conformance import *; "
    "serve_http(RpcServer(ConformanceService, ConformanceServiceImpl()))"
)


def _ours(transport: str) -> list[str]:
    return [sys.executable, "-c", _HTTP if transport == "http" else _MAIN.format("vgi_conformance")]


def _with(folder: Path) -> dict[str, str]:
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH", str(ROOT / "python"))])])
    return {"PYTHONPATH": path, "PENSTOCK_VGI_DIALECT": "0.10", "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.mark.parametrize("transport", ["pipe", "unix", "http"])
def test_our_caller_and_our_worker_pass_them(run_suite: SUITE, translated: Path, transport: str) -> None:
    counts = run_suite(sys.executable, "vgi_conformance", transport, _ours(transport), **_with(translated))
    assert counts["passed"] >= MANY, counts


@pytest.mark.parametrize("transport", ["pipe", "unix", "shm", "http"])
def test_our_caller_passes_them_with_the_references_worker(
    run_suite: SUITE, translated: Path, reference: Path, transport: str
) -> None:
    worker = ["env", "-u", "PYTHONPATH", str(reference), "-c", _MAIN.format("vgi_rpc.conformance")]
    spoils = {"SPOILS": "1"} if transport in ("pipe", "shm") else {}
    counts = run_suite(sys.executable, "vgi_conformance", transport, worker, **_with(translated), **spoils)
    assert counts["passed"] >= MANY, counts


@pytest.mark.parametrize("transport", ["pipe", "unix", "shm", "http"])
def test_the_references_caller_passes_them_with_our_worker(
    run_suite: SUITE, translated: Path, reference: Path, transport: str
) -> None:
    path = _with(translated)["PYTHONPATH"]
    worker = ["env", f"PYTHONPATH={path}", *_ours(transport)]
    counts = run_suite(reference, "vgi_rpc.conformance", transport, worker, PENSTOCK_VGI_DIALECT="0.10")
    assert counts["passed"] >= MANY, counts
