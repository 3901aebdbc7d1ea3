"""Arrow functions in other processes, against the package vgi-rpc 0.10.0, each with its own caller and worker."""

from benches.runner import Bench, at_least, at_most
from benches.suites._peers import sized_name
from benches.suites._vgi_sides import FLIGHT, OURS, REFERENCE, Sides, record

_CPU = "µs CPU/batch"


def run(bench: Bench) -> None:
    sides = Sides(bench)
    _add(bench, sides)
    for octets in (1 << 20, 16 << 20):
        _pipe(bench, sides, octets)
    for octets in (64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20):
        _shared_memory(bench, sides, octets)


def _add(bench: Bench, sides: Sides) -> None:
    ours, reference, flight = (OURS, "pipe"), (REFERENCE, "pipe"), (FLIGHT, "TCP")
    runs = sides.runs([ours, reference, flight], "add", bench.sized(5_000, 20))
    what = "add(a, b) over a pipe"
    pair = (ours, reference)
    record(bench, f"{what}, worker", "µs CPU/call", "worker_cpu_us", runs, pair, bar=at_most(0.25))
    record(bench, f"{what}, caller", "µs CPU/call", "caller_cpu_us", runs, pair)
    record(bench, what, "calls/s", "per_second", runs, pair, bar=at_least(3))
    pair = (ours, flight)
    record(bench, f"{what} against DoAction, worker", "µs CPU/call", "worker_cpu_us", runs, pair)
    record(bench, f"{what} against DoAction", "calls/s", "per_second", runs, pair)


def _pipe(bench: Bench, sides: Sides, octets: int) -> None:
    ours, reference, flight = (OURS, "pipe"), (REFERENCE, "pipe"), (FLIGHT, "TCP")
    runs = sides.runs([ours, reference, flight], "echo", bench.sized((512 << 20) // octets, 2), octets)
    what = f"exchange of {sized_name(octets)} over a pipe, there and back"
    missed = _MISSED.get(("pipe", octets))
    record(bench, what, "batches/s", "per_second", runs, (ours, reference), bar=at_least(2), missed=missed)
    record(bench, f"{what}, both ends", _CPU, "cpu_us", runs, (ours, reference))
    record(bench, f"{what}, against DoExchange", "batches/s", "per_second", runs, (ours, flight))
    record(bench, f"{what}, against DoExchange, both ends", _CPU, "cpu_us", runs, (ours, flight))


def _shared_memory(bench: Bench, sides: Sides, octets: int) -> None:
    ours, pipe, reference = (OURS, "shm"), (OURS, "pipe"), (REFERENCE, "shm")
    runs = sides.runs([ours, pipe, reference], "echo", bench.sized(min(2_000, (1 << 30) // octets), 2), octets)
    what = f"exchange of {sized_name(octets)} through shared memory"
    bar = at_least(3) if octets in (1 << 20, 16 << 20) else None
    missed = _MISSED.get(("shm", octets))
    record(bench, what, "batches/s", "per_second", runs, (ours, reference), bar=bar, missed=missed)
    record(bench, f"{what}, both ends", _CPU, "cpu_us", runs, (ours, reference))
    # Where the pipe is the faster way both are the same; a twentieth is noise.
    record(
        bench,
        f"{what}, against the pipe",
        "batches/s",
        "per_second",
        runs,
        (ours, pipe),
        bar=at_least(0.95),
        missed=_MISSED.get(("own pipe", octets)),
    )


_MISSED: dict[tuple[str, int], str] = {}
"""Why a bar is missed, of what is measured and its octets."""
