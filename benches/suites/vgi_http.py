"""Arrow functions over HTTP: our server and caller against vgi-rpc's, which are waitress with falcon, and httpx."""

from benches.runner import Bench, at_least
from benches.suites._vgi_sides import FLIGHT, OURS, REFERENCE, Sides, record


def run(bench: Bench) -> None:
    sides = Sides(bench)
    ours, reference, flight = (OURS, "http"), (REFERENCE, "http"), (FLIGHT, "TCP")
    runs = sides.runs([ours, reference, flight], "add", bench.sized(2_000, 20))
    what = "add(a, b) over HTTP"
    record(bench, what, "calls/s", "per_second", runs, (ours, reference), bar=at_least(5))
    record(bench, f"{what}, both ends", "µs CPU/call", "cpu_us", runs, (ours, reference))
    record(bench, f"{what}, against DoAction", "calls/s", "per_second", runs, (ours, flight))
    data = 1 << 20
    runs = sides.runs([ours, reference, flight], "echo", bench.sized(200, 2), data)
    what = "exchange of 1 MiB over HTTP, there and back"
    note = "Random numbers, both as they are by default: zstd is offered."
    record(bench, what, "batches/s", "per_second", runs, (ours, reference), bar=at_least(4), note=note)
    record(bench, f"{what}, both ends", "µs CPU/batch", "cpu_us", runs, (ours, reference))
    record(bench, f"{what}, against DoExchange", "batches/s", "per_second", runs, (ours, flight))
