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
    "Profile of four decreases between extracts: 39 % in extracts, of which four tenths wait for the children's "
    "lines, 26 % in decreases, nine tenths of that for the node's line and its parent's, 26 % in the workload's "
    "own steps, the same for all sides. Arithmetic: 15 M links, 0.5 M cuts, and the 2 M of the 4 M decreases "
    "whose item is still there, for a million items; each goes to a node that no cache need have. Attempts, "
    "medians of five or six runs in turn, in seconds: cases by rank instead of one way to grow 1.31 beside 1.41 "
    "(kept, then replaced by the next); links within the node instead of blocks by rank 1.12 beside 1.37 (kept); "
    "nodes of half a line, with three links and values apart, 1.24 beside 1.07; the least of all roots without a "
    "branch 1.06 beside 1.07 (kept, within the noise); a bound that follows the parent's key 1.06 beside 1.06. "
    "The lesser of two roots without a branch was 1.51 after 1.61, one after the other, not in turn (kept)."
)
