"""The manifest's heap, 1 M inserts, 4 M decrease-keys, 1 M extracts.

Ours is the Fibonacci heap that the specification's reference notes recommend. The peers get the same keys in the same
order (one file of Rust makes them for all), and all must extract in the same order, which a checksum shows. The
manifest keeps a handle for each entry, so our side does too, and the indexed heap; the crate priority-queue finds
items by hashing, with the standard library's hasher unless the line says otherwise. The indexed heap of eight
children a node was the manifest's before, and shows what an array makes of the same work: there is no bar for it,
because it is faster.
"""

from pathlib import Path
from typing import Any

from benches.runner import Bar, Bench, at_least

PEER = "priority-queue"
INDEXED = "indexed heap, eight children a node"


def run(bench: Bench) -> None:
    items = bench.sized(1_000_000, 1_000)
    ours, peer = bench.program("heap"), bench.peer("heap")
    for order in _TITLES:
        _order(bench, order, items, ours, peer)


def _order(bench: Bench, order: str, items: int, ours: Path, peer: Path) -> None:
    def call(*command: str | Path) -> Any:
        return bench.json_of(*command)

    made = bench.interleaved(
        {
            "penstock": lambda: call(ours, order, str(items)),
            PEER: lambda: call(peer, order, str(items)),
            f"{PEER}, foldhash": lambda: call(peer, order, str(items), "foldhash"),
            INDEXED: lambda: call(peer, order, str(items), "indexed"),
        },
        runs=7,
    )
    checksums = {run["checksum"] for runs in made.values() for run in runs}
    if len(checksums) != 1:
        raise RuntimeError(f"the heaps disagree on the order of extraction: {checksums}")
    seconds = {side: [run["seconds"]["total"] for run in runs] for side, runs in made.items()}
    bars: dict[str, Bar | None] = {PEER: at_least(2.0), f"{PEER}, foldhash": at_least(2.0), INDEXED: None}
    for name, bar in bars.items():
        bench.record(
            _TITLES[order],
            "s",
            seconds["penstock"],
            peer=seconds[name],
            peer_name=name,
            ratio_of="peer/ours",
            bar=bar,
            missed=_MISSED,
        )


_TITLES = {"phases": "inserts, then decreases, then extracts", "interleaved": "four decreases between extracts"}
_MISSED = (
    "An extract of a Fibonacci heap of a million items links what it lays open again, a tree of each rank or so: 17 M "
    "links when the decreases come first, 15 M and 0.5 M cuts when they lie between the extracts. A link touches two "
    "nodes and a block, which for the lowest ranks lie in memory that no cache has. The workload's own steps, the same "
    "for all sides, are about a quarter of the time where decreases lie between extracts."
)
