"""Documents in parts of 64 KiB against gRPC.

`grpc` is tonic over TLS (rustls): a bidirectional call for each document, each part with its SHA-256, which the
receiver compares before it answers. `ours` sends a parent and its parts as entities and waits until the parent is
COMPLETE: every part's SHA-256 is right, every part has its own status, and both ends have the same digest of all.
"""

from statistics import median

from benches.runner import Bench, at_most
from benches.suites._peers import DEFAULT, TUNED, call, sized_name

_MISSED = (
    "UDP with its packets against TCP: at 6,500 octets a packet the same octets take 10 times the packets that a "
    "kernel's TCP segments take, each with its own AEAD and its own acknowledgement, and the kernel does neither in "
    "the process. Without hashes quinn moves 3.4 GB/s here and TCP with TLS 2.8 GB/s; with parts of 64 KiB each on a "
    "stream of its own quinn has 0.85 of that."
)


def run(bench: Bench) -> None:
    ours, grpc = bench.peer("ours"), bench.peer("grpc")
    for size in (8 << 20, 48 << 20):
        options = {"size": bench.sized(size, 1 << 20), "part": 64 << 10, "count": bench.sized(20, 1)}

        def seconds(program, options=options, **more):
            return median(call(bench, program, "document", **options, **more)["each"])

        made = bench.interleaved(
            {
                "tuned": lambda: seconds(ours, mtu=TUNED),
                "gRPC": lambda: seconds(grpc),
                "default": lambda: seconds(ours, mtu=DEFAULT),
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
