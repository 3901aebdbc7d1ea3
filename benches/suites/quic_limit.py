"""Entities over QUIC against what quinn alone can do.

Two processes on one machine. `limit` is quinn without a protocol: for each entity a stream with the same header and
payload, SHA-256 on both sides, a frame of PENDING's length on stream 0 and one of COMPLETE's back. `ours` does the
same by penstock's sessions, with announcements, statuses, cursor and manifest. Windows, streams, socket buffers and
packets are the same. `bare` is streams and nothing else, to compare with other measurements of quinn.
"""

from benches.runner import Bench, at_least
from benches.suites._peers import DEFAULT, TUNED, call, column, record_costs, sized_name

_SIZES = {1 << 10: 300_000, 16 << 10: 60_000, 256 << 10: 6_000, 4 << 20: 400}
_MISSED = (
    "By counting samples of `perf record` over both processes at 1 KiB, with the payloads' SHA-256 taken out: of what "
    "ours spends beyond the limit program, a third is allocation (a header with its metadata, a copy of the payload "
    "that lets the packet go), a third is the session (two statuses, the digest's leaf and node, events), a third is "
    "the way between the caller's thread and the IO thread, which the limit program does not have."
)


def run(bench: Bench) -> None:
    ours, limit = bench.peer("ours"), bench.peer("limit")
    for size, entities in _SIZES.items():
        count = bench.sized(entities, 20)
        made = bench.interleaved(
            {
                "penstock": lambda size=size, count=count: call(
                    bench, ours, "streams", size=size, count=count, mtu=TUNED
                ),
                "quinn": lambda size=size, count=count: call(
                    bench, limit, "streams", size=size, count=count, mtu=TUNED
                ),
            },
            runs=5,
        )
        what = sized_name(size)
        bench.record(
            f"entities of {what}",
            "entities/s",
            column(made["penstock"], "per_second"),
            peer=column(made["quinn"], "per_second"),
            peer_name="quinn",
            ratio_of="ours/peer",
            bar=at_least(0.85),
            missed=_MISSED,
        )
        record_costs(bench, f"entities of {what}", made["penstock"], size)
    _bare(bench)


def _bare(bench: Bench) -> None:
    """The peer's own figures, for readers who know quinn's."""
    limit = bench.peer("limit")
    for mtu in (DEFAULT, TUNED):
        for size, entities in _SIZES.items():
            report = call(bench, limit, "bare", size=size, count=bench.sized(entities, 20), mtu=mtu)
            bench.record(f"quinn, streams of {sized_name(size)}, packets of {mtu}", "streams/s", [report["per_second"]])
