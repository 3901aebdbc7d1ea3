"""The cost of an entity does not rise with their number.

Sessions of a thousand to a million entities of 64 bytes, warm before the clock starts; those of few entities are
repeated until the time can be measured.
"""

from benches.runner import Bench, at_most
from benches.suites._peers import TUNED, call, column


def run(bench: Bench) -> None:
    ours = bench.peer("ours")
    most = bench.sized(1_000_000, 2_000)
    sides = {
        f"{count}": lambda count=count: call(
            bench, ours, "flat", size=64, count=count, repeat=max(1, most // count // 4), mtu=TUNED
        )
        for count in (1_000, 10_000, 100_000, 1_000_000)
        if count <= most
    }
    made = bench.interleaved(sides, runs=3)
    first = column(made["1000"], "us_per_entity")
    for name, runs in made.items():
        if name == "1000":
            continue
        bench.record(
            f"an entity of {int(name):,} against one of 1,000",
            "µs",
            column(runs, "us_per_entity"),
            peer=first,
            peer_name="1,000 entities",
            ratio_of="ours/peer",
            bar=at_most(1.2),
            missed="The window of 65,536 entities does not fit into the caches; the CPU time below is what it costs.",
        )
    for end in ("sender", "receiver"):
        bench.record(f"an entity of 64 bytes, {end}", "µs CPU/entity", column(made[str(most)], f"{end}_cpu_us"))
