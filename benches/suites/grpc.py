"""Documents in parts of 64 KiB against gRPC.

`grpc` is tonic over TLS (rustls): a bidirectional call for each document, each part with its SHA-256, which the
receiver compares before it answers. `ours` sends a parent and its parts as entities and waits until the parent is
COMPLETE: every part's SHA-256 is right, every part has its own status, and both ends have the same digest of all.
"""

from functools import partial
from pathlib import Path
from statistics import median

from benches.runner import Bench, at_most
from benches.suites._peers import DEFAULT, TUNED, call, sized_name

_MISSED = (
    "UDP against TCP: 48 MiB are 7,750 packets of 6,500 bytes, each sealed, opened and acknowledged in the process, "
    "where TLS seals 3,100 records of 16 KiB and the kernel acknowledges. Each part is also a stream, an announcement "
    "and a status."
)


def run(bench: Bench) -> None:
    ours, grpc = bench.peer("ours"), bench.peer("grpc")
    for size in (8 << 20, 48 << 20):
        options = {"size": bench.sized(size, 1 << 20), "part": 64 << 10, "count": bench.sized(20, 1)}
        made = bench.interleaved(
            {
                "tuned": partial(_seconds, bench, ours, **options, mtu=TUNED),
                "gRPC": partial(_seconds, bench, grpc, **options),
                "default": partial(_seconds, bench, ours, **options, mtu=DEFAULT),
            },
            runs=5,
        )
        for profile, bar in (("tuned", at_most(1.2)), ("default", None)):
            bench.record(
                f"document of {sized_name(size)}, {profile} profile",
                "s",
                made[profile],
                peer=made["gRPC"],
                peer_name="gRPC",
                ratio_of="ours/peer",
                bar=bar,
                missed=_MISSED,
            )


def _seconds(bench: Bench, program: Path, **options: int) -> float:
    return float(median(call(bench, program, "document", **options)["each"]))
