"""Layer 2 of PipeStream: its cost where nothing of it is used, that of a session that survives, and claim checks.

Entities of 1 KiB between two processes, as in `quic_limit`: both ends agree on layer 1, on layer 2, and on layer 2 with
a session that goes on when its connection is lost (each end keeps what the other has not said to have). The claim
checks are in one book of the core, without its file.
"""

from functools import partial

from benches.runner import Bench, at_least
from benches.suites._peers import TUNED, call, column, record_costs

_MISSED = ""


def run(bench: Bench) -> None:
    _unused(bench)
    _claims(bench)


def _unused(bench: Bench) -> None:
    ours = bench.peer("ours")
    options = {"size": 1 << 10, "count": bench.sized(300_000, 20), "mtu": TUNED, "batch": 256}
    made = bench.interleaved(
        {
            "layer 1": partial(call, bench, ours, "streams", **options),
            "layer 2": partial(call, bench, ours, "streams", **options, layers=2),
            "layer 2, survives": partial(call, bench, ours, "streams", **options, layers=2, survive=60),
        },
        runs=7,
    )
    first = column(made["layer 1"], "per_second")
    for side, bar in (("layer 2", at_least(0.98)), ("layer 2, survives", None)):
        bench.record(
            f"entities of 1 KiB, {side}",
            "entities/s",
            column(made[side], "per_second"),
            peer=first,
            peer_name="layer 1",
            ratio_of="ours/peer",
            bar=bar,
            missed=_MISSED,
        )
    for side, runs in made.items():
        record_costs(bench, f"entities of 1 KiB, {side}", runs, 1 << 10)


def _claims(bench: Bench) -> None:
    program, count = bench.program("claims"), bench.sized(1_000_000, 1_000)
    runs = [bench.json_of(program, str(count)) for _ in range(bench.sized(3, 1))]
    for name, unit in (
        ("bytes_each", "octets of memory"),
        ("disk_bytes_each", "octets on disk"),
        ("issue_ns", "ns to issue"),
        ("query_ns", "ns to look up"),
        ("redeem_ns", "ns to redeem"),
    ):
        bench.record(f"{count:,} open claim checks, each", unit, column(runs, name))
    bench.record(f"{count:,} open claim checks, all read again", "s", column(runs, "restore_seconds"))
