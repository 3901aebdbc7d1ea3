"""Entities over QUIC against what quinn alone can do.

Two processes on one machine. `limit` is quinn without a protocol: for each entity a stream with the same header and
payload, SHA-256 on both sides, a frame of PENDING's length on stream 0 and one of COMPLETE's back. `ours` does the
same by penstock's sessions, with announcements, statuses, cursor and manifest. Windows, streams, socket buffers and
packets are the same. The limit program has one thread in each process, which also hashes; ours has the IO thread and
the caller's, who hashes. `bare` is streams and nothing else (their ends are echoed), to compare with other measurements
of quinn: on two cores of an AMD Zen 5 those were 767,000, 78,000 and 4,800 streams a second of 1, 16 and 256 KiB in
packets of 1,452 bytes, and 1.25 million, 160,000 and 9,900 in packets of 6,500. An Intel Xeon of 2.1 GHz with nothing
else to do gave 0.43, 0.58 and 0.56 of the first, and 0.39, 0.57 and 0.66 of the second.
"""

from functools import partial

from benches.runner import Bench, at_least
from benches.suites._peers import DEFAULT, TUNED, call, column, record_costs, sized_name

_SIZES = {1 << 10: 300_000, 16 << 10: 60_000, 256 << 10: 6_000, 4 << 20: 400}
# Entities that a caller hands over together: it hashes them while those before are sent.
_BATCHES = {1 << 10: 256, 16 << 10: 64, 256 << 10: 16, 4 << 20: 2}
_MISSED = {
    1 << 10: (
        "The lines below have the CPU time of both ends. Two processes on two cores cannot go faster than 2 cores "
        "/ their sum: about 200,000 a second for ours. `perf record` at 2,000 samples a second, 600,000 entities: "
        "8.9 µs an entity, 6.2 of it on the IO threads of both ends (quinn, sealing, UDP, and 2 µs of "
        "announcements, statuses, cursor, manifest, headers and events), 2.7 on their callers' (SHA-256 1.6, "
        "handing over 1.1); no function but SHA-256 has 5 %, memory copies 5 %, malloc and free 9 %. The limit "
        "program takes 5.8 µs: its one thread hashes as well and hands nothing over. With 1.65 cores busy, the "
        "rest is waking threads. With another allocator (mimalloc) it is 7 % faster."
    ),
    16 << 10: (
        "By CPU, below: 2 cores / the sum of both ends is what ours cannot pass. `perf record` at 3,000 samples a "
        "second, 120,000 entities: 59.5 µs an entity against 45.9 of the limit program; SHA-256 27.0 against "
        "24.5, since another thread hashes what the IO thread has in its cache; copying at the receiver 3.4 "
        "against 1.6, since a payload up to 64 KiB is collected into one piece, which lets its packets go."
    ),
}


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
            missed=_MISSED.get(size, _MISSED[16 << 10]),
        )
        for side, runs in made.items():
            record_costs(bench, f"entities of {what}, {side}", runs, size)
    _bare(bench)


def _bare(bench: Bench) -> None:
    """The peer's own figures, for readers who know quinn's."""
    limit = bench.peer("limit")
    for mtu in (DEFAULT, TUNED):
        for size, entities in _SIZES.items():
            report = call(bench, limit, "bare", size=size, count=bench.sized(entities, 20), mtu=mtu)
            bench.record(f"quinn, streams of {sized_name(size)}, packets of {mtu}", "streams/s", [report["per_second"]])
