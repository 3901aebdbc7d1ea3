"""What the suites of vgi have in common: who is measured, and what is recorded of them."""

import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benches.runner import Bench
from benches.suites._peers import column

_WORKER = Path(__file__).with_name("_vgi_worker.py")
_FLIGHT = Path(__file__).with_name("_vgi_flight.py")
_REFERENCE = Path(__file__).resolve().parents[2] / "scripts" / "vgi_reference.py"

OURS, REFERENCE, FLIGHT = "penstock", "vgi-rpc", "Arrow Flight"

Runs = dict[str, list[dict[str, float]]]
"""The figures of each side's runs."""


class Sides:
    """Calls callers of penstock, of the reference in its own Python, and of Arrow Flight; each has its own worker."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._environment = bench.use_extension()
        made = subprocess.run([sys.executable, str(_REFERENCE)], capture_output=True, text=True, check=True)
        self._reference = made.stdout.strip()

    def runs(self, sides: Sequence[tuple[str, str]], what: str, count: int, size: int = 0) -> Runs:
        """Five runs of each side, in turn; a side is who, and over what: ``("penstock", "shm")``."""
        calls = {_name(side): partial(self._call, *side, what, count, size) for side in sides}
        return self._bench.interleaved(calls, runs=5)

    def _call(self, who: str, transport: str, what: str, count: int, size: int) -> dict[str, float]:
        python = self._reference if who == REFERENCE else sys.executable
        program = [_FLIGHT] if who == FLIGHT else [_WORKER, "vgi_rpc" if who == REFERENCE else "penstock.vgi"]
        given = self._environment if who == OURS else {}
        words = (*map(str, program), "call", transport, what, str(count), str(size))
        figures: dict[str, float] = self._bench.json_of(python, *words, env=given)
        return figures | {"cpu_us": figures["caller_cpu_us"] + figures["worker_cpu_us"]}


def _name(side: tuple[str, str]) -> str:
    return " ".join(side)


def record(
    bench: Bench,
    name: str,
    unit: str,
    figure: str,
    runs: Runs,
    sides: tuple[tuple[str, str], tuple[str, str]],
    **more: Any,
) -> None:
    """Record one figure of ours against the peer's, by the ratio of ours to the peer's."""
    ours, peer = (column(runs[_name(side)], figure) for side in sides)
    who, transport = sides[1]
    peer_name = who if who != OURS else f"our own {transport}"
    bench.record(name, unit, ours, peer=peer, peer_name=peer_name, ratio_of="ours/peer", **more)
