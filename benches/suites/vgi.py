"""Arrow functions in other processes, against the package vgi-rpc 0.10.0, each with its own caller and worker."""

import subprocess
import sys
from functools import partial
from pathlib import Path

from benches.runner import Bench, at_least, at_most
from benches.suites._peers import column, sized_name

_PROGRAM = Path(__file__).with_name("_vgi_worker.py")
_REFERENCE = Path(__file__).resolve().parents[2] / "scripts" / "vgi_reference.py"


def run(bench: Bench) -> None:
    environment = bench.use_extension()
    made = subprocess.run([sys.executable, str(_REFERENCE)], capture_output=True, text=True, check=True)
    reference = Path(made.stdout.strip())
    sides = {"penstock": (Path(sys.executable), "penstock.vgi"), "vgi-rpc": (reference, "vgi_rpc")}

    def call(side: str, what: str, count: int, octets: int = 0) -> dict[str, float]:
        python, package = sides[side]
        words = (str(_PROGRAM), package, "call", what, str(count), str(octets))
        given = environment if side == "penstock" else {}
        figures: dict[str, float] = bench.json_of(python, *words, env=given)
        return figures

    count = bench.sized(5_000, 20)
    runs = bench.interleaved({side: partial(call, side, "add", count) for side in sides}, runs=5)
    for name, unit, bar in (
        ("worker_cpu_us", "µs CPU/call", at_most(0.25)),
        ("caller_cpu_us", "µs CPU/call", None),
        ("per_second", "calls/s", at_least(3)),
    ):
        bench.record(
            f"add(a, b) over a pipe, {name.replace('_', ' ').removesuffix(' us')}",
            unit,
            column(runs["penstock"], name),
            peer=column(runs["vgi-rpc"], name),
            peer_name="vgi-rpc",
            ratio_of="ours/peer",
            bar=bar,
        )
    for octets in (1 << 20, 16 << 20):
        count = bench.sized((256 << 20) // octets, 2)
        runs = bench.interleaved(
            {side: partial(call, side, "echo", count, octets) for side in sides},
            runs=5,
        )
        bench.record(
            f"exchange of {sized_name(octets)} over a pipe, there and back",
            "batches/s",
            column(runs["penstock"], "per_second"),
            peer=column(runs["vgi-rpc"], "per_second"),
            peer_name="vgi-rpc",
            ratio_of="ours/peer",
            bar=at_least(2),
        )
