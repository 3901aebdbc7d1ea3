"""Round trips on stream 0 while entities of 256 KiB are sent.

`limit` has a frame echoed by quinn alone; `ours` asks by CHECKPOINT for an entity that is complete, so that the answer
is due at once. Both do so every millisecond while the connection is full, and both hash on a thread of their own: on
the IO thread 256 KiB take so long that `limit` would wait for its own hashes.
"""

from benches.runner import Bench, at_most
from benches.suites._peers import TUNED, call, column

_MISSED = (
    "A CHECKPOINT and its answer each pass a driver, which first ends what it has in hand: 128 commands or 256 small "
    "entities at most. The limit program's echo passes none."
)


def run(bench: Bench) -> None:
    ours, limit = bench.peer("ours"), bench.peer("limit")
    count = bench.sized(2_000, 20)
    options = {"size": 256 << 10, "count": count, "mtu": TUNED}
    made = bench.interleaved(
        {
            "penstock": lambda: call(bench, ours, "control", **options, batch=16),
            "quinn": lambda: call(bench, limit, "control", **options, hash="own"),
        },
        runs=5,
    )
    for name, bar in (("p50", None), ("p99", at_most(1.5))):
        bench.record(
            f"control round trip under bulk, {name}",
            "µs",
            column(made["penstock"], f"{name}_us"),
            peer=column(made["quinn"], f"{name}_us"),
            peer_name="quinn",
            ratio_of="ours/peer",
            bar=bar,
            missed=_MISSED,
        )
