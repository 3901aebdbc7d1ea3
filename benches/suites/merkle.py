"""Merkle root of 1 M leaves.

The peer is SHA-256's block function alone (`sha2`, with the CPU's SHA instructions): one block for each leaf and two
for each node, the fixed padding included, over bytes that lie still.
"""

from benches.runner import Bench, at_most


def run(bench: Bench) -> None:
    program, leaves = bench.program("merkle"), str(bench.sized(1_000_000, 1_000))
    bench.pair(
        "root of 1 M leaves",
        "s",
        ours=lambda: bench.json_of(program, "tree", leaves)["seconds"],
        peer=lambda: bench.json_of(program, "blocks", leaves)["seconds"],
        peer_name="block function",
        ratio_of="ours/peer",
        bar=at_most(1.1),
        runs=9,
    )
