"""The Spark sink, rows carrying bytes, against a Rust process that sends the same bytes.

Both send to a sink in a process of its own, from two sessions at a time: two tasks of Spark, two threads of the Rust
program, which takes its bytes out of memory and does nothing else. Both hash every row, the sink hashes it again and
makes it durable before it says COMPLETE, and both end with the digest of the root scope; Spark commits as well. Rows
come from a literal of the JVM, so they pass through Arrow, a socket and Python on their way. Start-up is outside on
both sides: that of processes, and, in Spark, the first jobs and the time of the same job with one row for each task.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benches.runner import Bench, at_least

# The largest first: what is removed after a size makes files a little dearer for a while.
SIZES = [(1 << 20, 512), (64 << 10, 8_000), (1 << 10, 30_000)]

_WARM_UP = 3

_LARGE_ROWS = """CPU time for a row of 1 MiB, both cores busy: the JVM 2.6 ms, the workers 2.8, the sink 2.4,
7.8 together, which two cores do in 3.9 ms; the Rust process and its sink take 2.3 ms of time. A job that only
brings the rows to Python and back takes 3.4 ms of the JVM and 1.0 of the workers: that is what Spark adds."""
_SMALL_ROWS = """CPU time for a row of 1 KiB: the JVM 13 µs, the workers 20, the sink 53, 86 together, which two
cores do in 43 µs; the Rust process takes 42 to 56 µs of time, so by CPU alone the bar would be met. The rest is
the disk: a row is a file that is made durable; 15,000 rows took 58 µs each, 30,000 took 70 to 138."""


def run(bench: Bench) -> None:
    bench.use_extension()
    from penstock.spark import local_session

    program = bench.program("rows")
    config = {"spark.ui.showConsoleProgress": "false"}
    with local_session("benches", master="local[2]", config=config) as spark:
        for size, rows in SIZES:
            _measure(bench, spark, program, size, bench.sized(rows, 20))


def _measure(bench: Bench, spark: Any, program: Path, size: int, rows: int) -> None:
    with _sink(bench) as sink:

        def job(count: int) -> float:
            content = f"cast(repeat('x', {size}) as binary) content"
            frame = spark.range(0, count, 1, 2).selectExpr(content, "'a.zip' document")
            writer = frame.write.format("pipestream").mode("append").option("fingerprint", sink.fingerprint)
            return bench.seconds(lambda: writer.save(sink.address))

        def ours() -> float:
            seconds = job(rows) - job(2)
            os.sync()
            return seconds

        def peer() -> float:
            made = bench.json_of(program, sink.address, sink.fingerprint, str(rows), str(size), "2")
            os.sync()
            return float(made["seconds"])

        # Spark's compiler is done with these jobs after a few of them.
        for _ in range(bench.sized(_WARM_UP, 0)):
            job(rows)
            os.sync()
        bench.pair(
            f"{rows} rows of {size >> 10} KiB",
            "s",
            ours=ours,
            peer=peer,
            peer_name="Rust process",
            ratio_of="peer/ours",
            bar=at_least(0.7),
            missed=_SMALL_ROWS if size == 1 << 10 else _LARGE_ROWS,
        )


@contextmanager
def _sink(bench: Bench) -> Iterator[Any]:
    from penstock._demo.sink import SinkProcess

    with (
        bench.folder() as folder,
        SinkProcess(folder / "sink", folder / "events.jsonl", folder / "sink.log") as sink,
    ):
        yield sink
