"""The manifest's heap, 1 M inserts, 4 M decrease-keys, 1 M extracts.

The crate priority-queue gets the same keys in the same order (one file of Rust makes them for both), and both sides
must extract in the same order, which a checksum shows. The manifest keeps a handle for each entry, so our side does
too; priority-queue finds items by hashing, with the standard library's hasher unless the line says otherwise.
"""

from pathlib import Path
from typing import Any

from benches.runner import Bar, Bench, at_least

PEER = "priority-queue"


def run(bench: Bench) -> None:
    items = bench.sized(1_000_000, 1_000)
    ours, peer = bench.program("heap"), bench.peer("heap")
    _order(bench, "phases", items, ours, peer, at_least(2.0))
    _order(bench, "interleaved", items, ours, peer, None)


def _order(bench: Bench, order: str, items: int, ours: Path, peer: Path, bar: Bar | None) -> None:
    def call(*command: str | Path) -> Any:
        return bench.json_of(*command)

    made = bench.interleaved(
        {
            "penstock": lambda: call(ours, order, str(items)),
            PEER: lambda: call(peer, order, str(items)),
            f"{PEER}, foldhash": lambda: call(peer, order, str(items), "foldhash"),
        },
        runs=7,
    )
    checksums = {run["checksum"] for runs in made.values() for run in runs}
    if len(checksums) != 1:
        raise RuntimeError(f"the heaps disagree on the order of extraction: {checksums}")
    seconds = {side: [run["seconds"]["total"] for run in runs] for side, runs in made.items()}
    for name, limit in ((PEER, bar), (f"{PEER}, foldhash", None)):
        bench.record(
            _TITLES[order],
            "s",
            seconds["penstock"],
            peer=seconds[name],
            peer_name=name,
            ratio_of="peer/ours",
            bar=limit,
        )


_TITLES = {"phases": "inserts, then decreases, then extracts", "interleaved": "four decreases between extracts"}
