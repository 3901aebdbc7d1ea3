"""Layer 2 of PipeStream: its cost where nothing of it is used, that of sessions that survive, and claim checks.

Entities of 1 KiB between two processes, as in `quic_limit`: both ends agree on layer 1, on layer 2, and on layer 2 with
a session that goes on when its connection is lost (each end keeps what the other has not said to have). Entities of
64 KiB to a receiver that verifies them and drops them, to a sink, and to a sink whose sessions are on disk as well.
The receiver that is killed is such a sink; the one that is started again counts the bytes that come to it. The claim
checks are in one book of the core, without its file.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benches.runner import Bench, at_least, at_most
from benches.suites._peers import TUNED, call, column, record_costs

_MISSED = ""
_DURABLE_MISSED = (
    "The receiver in memory writes nothing at all. The sink alone takes twice its CPU (161 against 83 µs an entity): a "
    "file, its name and its line for each, synced for good. What the sessions add is on the line above."
)


def run(bench: Bench) -> None:
    _unused(bench)
    with bench.folder() as folder:
        _durable(bench, folder)
        _killed(bench, folder)
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


def _storing(bench: Bench, folder: Path, *words: str, **options: int) -> Callable[[], Any]:
    """Calls of a program whose receiver is a sink, each in a folder of its own."""
    call_number = 0

    def run() -> Any:
        nonlocal call_number
        call_number += 1
        # What the run before has written is not this one's to wait for.
        os.sync()
        name = "-".join([*words, *(f"{name}{value}" for name, value in options.items()), str(call_number)])
        return call(bench, bench.peer("ours"), *words, store=str(folder / name), **options)

    return run


def _durable(bench: Bench, folder: Path) -> None:
    options = {"size": 64 << 10, "count": bench.sized(8_000, 20), "mtu": TUNED, "batch": 64, "layers": 2, "survive": 60}
    sides: dict[str, Callable[[], Any]] = {
        "in memory": partial(call, bench, bench.peer("ours"), "streams", **options),
        "a sink": _storing(bench, folder, "streams", **options),
        "a sink, sessions on disk": _storing(bench, folder, "streams", **options, state=1),
    }
    made = bench.interleaved(sides, runs=5)
    memory, sink = column(made["in memory"], "per_second"), column(made["a sink"], "per_second")
    for side, peer, name, bar in (
        ("a sink", memory, "in memory", None),
        ("a sink, sessions on disk", sink, "a sink", at_least(0.5)),
        ("a sink, sessions on disk", memory, "in memory", at_least(0.5)),
    ):
        bench.record(
            f"entities of 64 KiB, {side}, beside {name}",
            "entities/s",
            column(made[side], "per_second"),
            peer=peer,
            peer_name=name,
            ratio_of="ours/peer",
            bar=bar,
            missed=_DURABLE_MISSED,
        )
    for side, runs in made.items():
        record_costs(bench, f"entities of 64 KiB, {side}", runs, 64 << 10)


def _killed(bench: Bench, folder: Path) -> None:
    options = {"size": 64 << 10, "count": bench.sized(4_000, 40), "mtu": TUNED, "batch": bench.sized(64, 4)}
    run = _storing(bench, folder, "killed", **options, layers=2, survive=60, state=1)
    runs = [run() for _ in range(bench.sized(5, 1))]
    bench.record(
        "entities of 64 KiB, receiver killed, sent again",
        "bytes",
        column(runs, "again_bytes"),
        peer=column(runs, "in_flight_bytes"),
        peer_name="in flight when it was killed",
        ratio_of="ours/peer",
        bar=at_most(1.0),
    )
    bench.record("entities of 64 KiB, receiver killed, until the next is complete", "s", column(runs, "back_seconds"))


def _claims(bench: Bench) -> None:
    program, count = bench.program("claims"), bench.sized(1_000_000, 1_000)
    runs = [bench.json_of(program, str(count)) for _ in range(bench.sized(3, 1))]
    for name, unit in (
        ("bytes_each", "bytes of memory"),
        ("disk_bytes_each", "bytes on disk"),
        ("issue_ns", "ns to issue"),
        ("query_ns", "ns to look up"),
        ("redeem_ns", "ns to redeem"),
    ):
        bench.record(f"{count:,} open claim checks, each", unit, column(runs, name))
    bench.record(f"{count:,} open claim checks, all read again", "s", column(runs, "restore_seconds"))
