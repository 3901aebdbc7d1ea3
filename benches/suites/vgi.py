"""Arrow functions in other processes, against the package vgi-rpc 0.10.0, each with its own caller and worker."""

from benches.runner import Bench, at_least, at_most
from benches.suites._peers import sized_name
from benches.suites._vgi_sides import FLIGHT, OURS, REFERENCE, Sides, record

_CPU = "µs CPU/batch"


def run(bench: Bench) -> None:
    sides = Sides(bench)
    _add(bench, sides)
    for data in (1 << 20, 16 << 20):
        _pipe(bench, sides, data)
    for data in (64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20):
        _shared_memory(bench, sides, data)
        _copied(bench, sides, data)


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


def _pipe(bench: Bench, sides: Sides, size: int) -> None:
    ours, reference, flight = (OURS, "pipe"), (REFERENCE, "pipe"), (FLIGHT, "TCP")
    runs = sides.runs([ours, reference, flight], "echo", bench.sized((512 << 20) // size, 2), size)
    what = f"exchange of {sized_name(size)} over a pipe, there and back"
    missed = _MISSED["pipe", size]
    record(bench, what, "batches/s", "per_second", runs, (ours, reference), bar=at_least(2), missed=missed)
    record(bench, f"{what}, both ends", _CPU, "cpu_us", runs, (ours, reference))
    record(bench, f"{what}, against DoExchange", "batches/s", "per_second", runs, (ours, flight))
    record(bench, f"{what}, against DoExchange, both ends", _CPU, "cpu_us", runs, (ours, flight))


def _shared_memory(bench: Bench, sides: Sides, size: int) -> None:
    ours, pipe, reference = (OURS, "shm"), (OURS, "pipe"), (REFERENCE, "shm")
    runs = sides.runs([ours, pipe, reference], "echo", bench.sized(min(2_000, (1 << 30) // size), 2), size)
    what = f"exchange of {sized_name(size)} through shared memory"
    bar = at_least(3) if size in (1 << 20, 16 << 20) else None
    missed = _MISSED.get(("shm", size))
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
        missed=_MISSED.get(("own pipe", size)),
    )


def _copied(bench: Bench, sides: Sides, size: int) -> None:
    """What it costs that the segment of a process that is neither child nor parent is copied before it is checked."""
    copied, unix, viewed = (OURS, "shm-copied"), (OURS, "unix"), (OURS, "shm")
    runs = sides.runs([copied, unix, viewed], "echo", bench.sized(min(2_000, (1 << 30) // size), 2), size)
    what = f"exchange of {sized_name(size)} through shared memory that is copied"
    for other, words in ((unix, "against the Unix socket alone"), (viewed, "against views of it")):
        record(bench, f"{what}, {words}", "batches/s", "per_second", runs, (copied, other))
        record(bench, f"{what}, {words}, both ends", _CPU, "cpu_us", runs, (copied, other))


_PIPE = """On a quiet machine an exchange of 1 MiB takes 416 µs with 580 µs of CPU at both ends, as both copy at a
time for 164 µs of it; the reference takes 909 and 896. The system copies each byte into a socket and out of it,
there and back (perf: `_copy_to_iter` and `_copy_from_iter` come first, with 13 and 11 % of all samples, the idle
core's among them). Where the other core is busy the ratio is that of CPU times, 0.67, and not that of walls,
0.47."""
_SHM = """614 µs of wall and 773 µs of CPU at both ends, where the reference takes 1,230 and 1,217 µs: three times
as fast would be 410 µs. At 16 MiB, where memory is the way, the bar is met (6.2): 3.6 ms with 3.4 ms of CPU, one
copy by each end (perf: `memmove` comes first) and none by a reader. At 1 MiB the pipe would be the faster way here
(473 µs), and a run of its own that took it on the way reached 406 µs; the choice by four tries each took memory,
see the figure against the pipe."""
_OWN_PIPE = """The way is chosen by the shortest of four tries each, while the other end tries too. Through the pipe
both ends copy at a time, through memory one writes while the other waits: 614 µs of wall for 773 µs of CPU at 1
MiB, 473 µs for 580 µs through the pipe. Four tries found memory faster all the same; more of them, or their median,
may mend it. Below that the two differ by less than runs of the same way do (8,381 to 10,685 batches/s at 64
KiB)."""
_MISSED: dict[tuple[str, int], str] = {
    **{("pipe", size): _PIPE for size in (1 << 20, 16 << 20)},
    **{("shm", size): _SHM for size in (1 << 20, 16 << 20)},
    **{("own pipe", size): _OWN_PIPE for size in (64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20)},
}
"""Why a bar is missed, of what is measured and its bytes."""
