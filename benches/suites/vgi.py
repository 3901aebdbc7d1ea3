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
    missed = _MISSED["pipe", octets]
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


_PIPE = """CPU time of an exchange of 16 MiB: 4.3 ms the caller, 4.5 ms the worker, 85 % of it in the kernel, which
copies the batch into a socket and out of it, there and back: 64 MiB at 8.5 GB/s. The reference takes 6.6 and 7.3 ms:
the same copies, and page faults of fresh memory for each batch, where ours is used again. Where both cores are free
our ends copy at a time; where they are not the ratio is that of CPU times, 1.6."""
_SHM = """CPU time of an exchange at both ends: 0.09 ms without data, and each end copies the batch once, 3.9 ms for
both with 16 MiB and 0.24 ms with 1 MiB. The reference takes 14.7 and 0.93 ms: three times as fast would be 4.9 and
0.31 ms. A reader copies nothing (a test counts its allocations), so that only the writing is left, once by each
end."""
_OWN_PIPE = """The way is chosen by the shortest of four times each: of two that differ by less than the machine's
noise either may be taken, and eight of 1,024 batches try both."""
_MISSED: dict[tuple[str, int], str] = {
    **{("pipe", octets): _PIPE for octets in (1 << 20, 16 << 20)},
    **{("shm", octets): _SHM for octets in (1 << 20, 16 << 20)},
    **{("own pipe", octets): _OWN_PIPE for octets in (64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20)},
}
"""Why a bar is missed, of what is measured and its octets."""
