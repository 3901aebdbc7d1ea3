"""Lumberjack into a Spark table, beside Spark's own file source over the same events.

Events of 200 bytes of JSON become three typed columns in files of Parquet, in a streaming query. Twice: with the
events in the spool when the query starts (what the source costs), and from the first event that a sender gives, over
the wire, through the durable spool, to the commit of the last micro-batch (what Filebeat would see). The file source
finds the same events as lines of JSON in as many files as there are cores. One query of each kind comes before what
counts, and Spark's start is outside.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benches.runner import Bench

_SCHEMA = "`@timestamp` timestamp, message string, status int"
_FILES = 2
_SENDER = """
import sys
from penstock.lumberjack import Sender
address, lines = sys.argv[1:]
events = open(lines, "rb").read().splitlines()
with Sender(address, protocol=2) as sender:
    sender.send(events)
"""


def run(bench: Bench) -> None:
    bench.use_extension()
    from penstock.spark import local_session

    count = bench.sized(1_000_000, 2_000)
    config = {"spark.ui.showConsoleProgress": "false"}
    with bench.folder() as work, local_session("benches", master="local[2]", config=config) as spark:
        _write(work, count)
        machine = _Machine(bench, spark, work, count)
        sides = {"spool": machine.from_spool, "wire": machine.from_wire, "files": machine.from_files}
        made = bench.interleaved(sides, runs=3)
    for name, what in {"spool": "from the spool", "wire": "from the sender to the table"}.items():
        bench.record(
            f"{count:,} events of 200 B, {what}",
            "events/s",
            made[name],
            peer=made["files"],
            peer_name="file source",
            ratio_of="ours/peer",
            note=None if name == "spool" else "The peer's files are there before it begins; ours are sent meanwhile.",
        )


def _write(work: Path, count: int) -> None:
    """The same events for both: lines in files, and all of them in one for the sender."""
    (work / "lines").mkdir()
    lines = []
    for number in range(count):
        event = {"@timestamp": "2026-01-01T00:00:00.000Z", "message": f"{number} ", "status": 200}
        event["message"] = str(event["message"]).ljust(200 - len(json.dumps(event, separators=(",", ":"))) + 9, "x")
        lines.append(json.dumps(event, separators=(",", ":")) + "\n")
    (work / "all.jsonl").write_text("".join(lines))
    share = -(-count // _FILES)
    for index in range(_FILES):
        (work / "lines" / f"{index}.jsonl").write_text("".join(lines[index * share : (index + 1) * share]))


class _Machine:
    """Runs one query after another, each into folders of its own."""

    def __init__(self, bench: Bench, spark: Any, work: Path, count: int) -> None:
        self.bench, self.spark, self.work, self.count = bench, spark, work, count
        self.runs = 0
        self.filled: Path | None = None

    def from_files(self) -> float:
        """Events a second through Spark's file source."""
        lines = self.spark.readStream.format("json").schema(_SCHEMA).load(str(self.work / "lines"))
        return self._until_done(lines)

    def from_spool(self) -> float:
        """Events a second through ours, from a folder that has them."""
        if self.filled is None:
            from penstock.lumberjack import Receiver

            self.filled = self.work / "filled"
            with Receiver(spool=self.filled) as receiver:
                self._send(receiver.address)
        events = self.spark.readStream.format("lumberjack").schema(_SCHEMA).load(str(self.filled))
        return self._until_done(events)

    def _until_done(self, frame: Any) -> float:
        with self._query(frame, availableNow=True) as (query, out):
            began = time.perf_counter()
            query.awaitTermination()
            seconds = time.perf_counter() - began
        self._check(out)
        return self.count / seconds

    def from_wire(self) -> float:
        """Events a second from the first one sent to the last one committed."""
        address = f"127.0.0.1:{_free_port()}"
        options = {"listen": address, "spool": str(self.work / f"spool-{self.runs}")}
        events = self.spark.readStream.format("lumberjack").schema(_SCHEMA).options(**options).load()
        with self._query(events, processingTime="0 seconds") as (query, out):
            while not _listens(address):
                _failed(query)
            began = time.perf_counter()
            self._send(address)
            while sum(progress["numInputRows"] for progress in query.recentProgress) < self.count:
                _failed(query)
                time.sleep(0.01)
            seconds = time.perf_counter() - began
        self._check(out)
        return self.count / seconds

    def _send(self, address: str) -> None:
        subprocess.run([sys.executable, "-c", _SENDER, address, str(self.work / "all.jsonl")], check=True)

    @contextmanager
    def _query(self, frame: Any, **trigger: Any) -> Iterator[tuple[Any, Path]]:
        self.runs += 1
        out = self.work / f"out-{self.runs}"
        written = frame.writeStream.format("parquet").option("checkpointLocation", f"{out}-checkpoint")
        query = written.trigger(**trigger).start(str(out))
        try:
            yield query, out
        finally:
            query.stop()

    def _check(self, out: Path) -> None:
        found = self.spark.read.parquet(str(out)).selectExpr("count(*)", "sum(status)", "count(message)").first()
        if tuple(found) != (self.count, 200 * self.count, self.count):
            raise RuntimeError(f"the table has {found} of {self.count} events")


def _failed(query: Any) -> None:
    if not query.isActive:
        raise RuntimeError(f"the query ended: {query.exception()}")


def _free_port() -> int:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _listens(address: str) -> bool:
    import socket

    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        time.sleep(0.01)
        return False
    return True
