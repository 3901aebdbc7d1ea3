"""The Spark sink, rows carrying bytes, against a Rust process that sends the same bytes.

Both send to a sink in a process of its own, from two sessions at a time: two tasks of Spark, two threads of the Rust
program, which takes its octets out of memory and does nothing else. Both hash every row, the sink hashes it again and
makes it durable before it says COMPLETE, and both end with the digest of the root scope; Spark commits as well. Rows
come from a literal of the JVM, so they pass through Arrow, a socket and Python on their way. Start-up is outside on
both sides: that of processes, and, in Spark, the time of the same job with one row for each task.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benches.runner import Bench, at_least

SIZES = [(1 << 10, 60_000), (64 << 10, 8_000), (1 << 20, 512)]

MISSED = """The JVM makes each row, copies it into Arrow and writes it to a socket, and a Python worker reads it from
there: four more passes over the octets, on the same two cores that send, receive and write them."""


def run(bench: Bench) -> None:
    bench.use_extension()
    from penstock.spark import local_session

    program = bench.program("rows")
    config = {"spark.ui.showConsoleProgress": "false"}
    with local_session("benches", master="local[2]", config=config) as spark:
        for size, rows in SIZES:
            _measure(bench, spark, program, size, bench.sized(rows, 20))


def _measure(bench: Bench, spark: Any, program: Path, size: int, rows: int) -> None:
    with _sink() as (sink, folder):

        def job(count: int) -> float:
            content = f"cast(repeat('x', {size}) as binary) content"
            frame = spark.range(0, count, 1, 2).selectExpr(content, "'a.zip' document")
            writer = frame.write.format("pipestream").mode("append").option("fingerprint", sink.fingerprint)
            return bench.seconds(lambda: writer.save(sink.address))

        def ours() -> float:
            seconds = job(rows) - job(2)
            _empty(folder)
            return seconds

        def peer() -> float:
            made = bench.json_of(program, sink.address, sink.fingerprint, str(rows), str(size), "2")
            _empty(folder)
            return float(made["seconds"])

        bench.pair(
            f"{rows} rows of {size >> 10} KiB",
            "s",
            ours=ours,
            peer=peer,
            peer_name="Rust process",
            ratio_of="peer/ours",
            bar=at_least(0.7),
            missed=MISSED,
        )


@contextmanager
def _sink() -> Iterator[tuple[Any, Path]]:
    from penstock._demo.sink import SinkProcess

    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        with SinkProcess(folder / "sink", folder / "events.jsonl", folder / "sink.log") as sink:
            yield sink, folder / "sink"


def _empty(sink: Path) -> None:
    """Leave no octets to the next run, and no work to its disk; the records of transactions stay."""
    for session in sink.iterdir():
        if not session.name.startswith("."):
            # The sink may be writing its last line.
            shutil.rmtree(session, ignore_errors=True)
    os.sync()
