"""A document of 4 GiB passes, and neither side's memory grows with it.

As one entity from a file, and as 65,536 parts of 64 KiB; the growth is that of the peak of resident memory since the
document began.
"""

from benches.runner import Bench, at_most
from benches.suites._peers import TUNED, call, column, sized_name


def run(bench: Bench) -> None:
    ours = bench.peer("ours")
    size = bench.sized(4 << 30, 8 << 20)
    for what, part in (("one entity", 0), ("parts of 64 KiB", 64 << 10)):
        report = call(bench, ours, "document", size=size, part=part, mtu=TUNED)
        name = f"document of {sized_name(size)} as {what}"
        bench.record(name, "MB/s", column([report], "mb_per_second"))
        for end in ("sender", "receiver"):
            bench.record(
                f"{name}: growth of the {end}'s memory",
                "MiB",
                column([report], f"{end}_growth_mib"),
                bar=at_most(256),
                missed="See the note on the suite.",
            )
