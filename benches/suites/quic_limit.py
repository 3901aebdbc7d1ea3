"""Entities over QUIC against what quinn alone can do.

Two processes on one machine. `limit` is quinn without a protocol: for each entity a stream with the same header and
payload, SHA-256 on both sides, a frame of PENDING's length on stream 0 and one of COMPLETE's back. `ours` does the
same by penstock's sessions, with announcements, statuses, cursor and manifest. Windows, streams, socket buffers and
packets are the same. The limit program has one thread in each process, which also hashes; ours has the IO thread and
the caller's, who hashes. `bare` is streams and nothing else (their ends are echoed), to compare with other measurements
of quinn: on two cores of an AMD Zen 5 those were 767,000, 78,000 and 4,800 streams a second of 1, 16 and 256 KiB in
packets of 1,452 octets, and 1.25 million, 160,000 and 9,900 in packets of 6,500. An Intel Xeon of 2.1 GHz with nothing
else to do gave 0.43, 0.58 and 0.56 of the first, and 0.39, 0.57 and 0.66 of the second.
"""

from functools import partial

from benches.runner import Bench, at_least
from benches.suites._peers import DEFAULT, TUNED, call, column, record_costs, sized_name

_SIZES = {1 << 10: 300_000, 16 << 10: 60_000, 256 << 10: 6_000, 4 << 20: 400}
# Entities that a caller hands over together: it hashes them while those before are sent.
_BATCHES = {1 << 10: 256, 16 << 10: 64, 256 << 10: 16, 4 << 20: 2}
_MISSED_1_KIB = (
    "`perf record` at 2,000 samples a second, 600,000 entities, nothing else running: 6,115 samples for the limit "
    "program (sender 2,822, receiver 3,293; it copied payloads then and does not now), 9,350 for ours (sender: IO "
    "thread 2,884, caller's 1,191; receiver: 3,464 and 1,810). SHA-256 has 1,839 and 1,823 of them. That is "
    "5.1 and 7.8 µs of CPU an entity. The limit program goes at the pace of its receiver, 2.7 µs: it did 357,000 a "
    "second; ours could not pass 2 cores / 7.8 µs = 257,000, and did 210,000, with 1.64 cores busy. `perf stat` of "
    "300,000 entities counts 70,433 context switches against 4,268: the receiver's IO thread wakes its caller's 36,000 "
    "times, for eight entities each. By call graphs: malloc 0.5 µs at the receiver's IO thread, free 0.3 at its "
    "caller's, decoding headers 0.3, the copy that lets a packet go 0.3 (both with their malloc), encoding headers 0.3 "
    "at the sender."
)
_MISSED = (
    "By CPU: the lines below have the time of both ends for each entity; two processes on two cores cannot go faster "
    "than 2 cores / their sum, and the limit program not faster than its slower end."
)


def run(bench: Bench) -> None:
    ours, limit = bench.peer("ours"), bench.peer("limit")
    for size, entities in _SIZES.items():
        count = bench.sized(entities, 20)
        made = bench.interleaved(
            {
                "penstock": partial(
                    call, bench, ours, "streams", size=size, count=count, mtu=TUNED, batch=_BATCHES[size]
                ),
                "quinn": partial(call, bench, limit, "streams", size=size, count=count, mtu=TUNED),
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
            missed=_MISSED_1_KIB if size == 1 << 10 else _MISSED,
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
