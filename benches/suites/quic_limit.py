"""Entities over QUIC against what quinn alone can do.

Two processes on one machine. `limit` is quinn without a protocol: for each entity a stream with the same header and
payload, SHA-256 on both sides, a frame of PENDING's length on stream 0 and one of COMPLETE's back. `ours` does the
same by penstock's sessions, with announcements, statuses, cursor and manifest. Windows, streams, socket buffers and
packets are the same. `bare` is streams and nothing else, to compare with other measurements of quinn.
"""

from functools import partial

from benches.runner import Bench, at_least
from benches.suites._peers import DEFAULT, TUNED, call, column, record_costs, sized_name

_SIZES = {1 << 10: 300_000, 16 << 10: 60_000, 256 << 10: 6_000, 4 << 20: 400}
_MISSED = (
    "`perf record` of 500,000 entities of 1 KiB on a busy machine: 7,690 samples over both processes for the limit "
    "program, 10,561 for ours (sender 3,180 and 4,560, receiver 4,510 and 6,000), SHA-256 of the payloads being about "
    "1,900 of either. Most of the rest is the way from the IO thread to the caller's (at the receiver 1,000 samples "
    "on the caller's thread beyond its hashing; the limit program hashes on its IO thread), then allocation and copies "
    "(memmove and malloc: a header's fields, a copy of the payload that lets its packet go), then the session with the "
    "digest's hashes (two blocks and a half for each entity)."
)


def run(bench: Bench) -> None:
    ours, limit = bench.peer("ours"), bench.peer("limit")
    for size, entities in _SIZES.items():
        count = bench.sized(entities, 20)
        made = bench.interleaved(
            {
                "penstock": partial(call, bench, ours, "streams", size=size, count=count, mtu=TUNED),
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
