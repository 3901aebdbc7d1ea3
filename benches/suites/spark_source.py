"""The Spark source: a sink's rows against a bare Arrow source of the same rows.

The bare source reads Arrow IPC files that hold exactly the batches of our partitions, mapped into memory and not
copied: whatever a Python data source costs in Spark, and nothing else. Ours opens a file for each row, reads its line
of JSON and makes fifteen columns; over QUIC a server in a process of its own does that, on the same two cores. Both
jobs have the same partitions and throw the rows away (`noop`); Spark's start and first query are outside.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from benches.runner import Bench, at_least

KEY = "a key for nothing but this benchmark"

MISSED_FOLDER = """CPU time of a row of 1 KiB in Spark's workers: 6.7 µs, and 2.8 for the bare source: 3.0 for
its line of JSON and 15 columns, the rest to open, read and close its file, since a sink keeps each payload in a
file of its own. The bare source maps a few large files, which costs nothing for a row."""
MISSED_SERVER = """Both cores are busy, so the ratio is that of CPU times. A row of 1 KiB: workers 5.4 µs,
server 4.6, JVM 6.5; bare 2.8 and 5.6: 0.51. A row of 64 KiB: workers 150 µs, server 76, JVM 116; bare 68 and
121: 0.55. A row of 1 MiB: 2.0, 0.94 and 1.7 ms; bare 0.96 and 1.8: 0.59. 0.8 would leave 47 µs for a row of 64
KiB; to send and receive so much over QUIC, without SHA-256, takes 80 µs of both ends (suite quic_limit: 2.7 ns
a byte, 1.6 of it SHA-256)."""
MISSED = {"folder": MISSED_FOLDER, "server": MISSED_SERVER}


class BareSource(DataSource):
    """Arrow IPC files of a folder, a partition each."""

    @classmethod
    def name(cls) -> str:
        return "bare"

    def schema(self) -> Any:
        from pyspark.sql.pandas.types import from_arrow_schema

        first = min(Path(self.options["path"]).iterdir())
        return from_arrow_schema(pa.ipc.open_stream(first).schema)

    def reader(self, schema: Any) -> "BareReader":  # noqa: ARG002 - what Spark calls
        return BareReader(sorted(map(str, Path(self.options["path"]).iterdir())))


class BareReader(DataSourceReader):
    """Gives the batches as they are."""

    def __init__(self, files: list[str]) -> None:
        self.files = files

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(file) for file in self.files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(partition.value) as mapped:
            yield from pa.ipc.open_stream(mapped)


def run(bench: Bench) -> None:
    bench.use_extension()
    from penstock.spark import local_session

    sizes = [(1 << 10, 60_000), (64 << 10, 6_000), (1 << 20, 400)]
    with local_session("benches", master="local[2]", config={"spark.ui.showConsoleProgress": "false"}) as spark:
        spark.dataSource.register(BareSource)
        for size, rows in sizes:
            _measure(bench, spark, size, bench.sized(rows, max(20, rows // 100)))


def _measure(bench: Bench, spark: Any, size: int, rows: int) -> None:
    with bench.folder() as work, _server(work) as (address, fingerprint):
        _fill(address, fingerprint, work / "sink", size, rows)
        _write_bare(work / "sink", work / "bare")
        options = {"address": address, "fingerprint": fingerprint, "read_key_file": str(work / "key")}
        frames = {
            "folder": spark.read.format("pipestream").load(str(work / "sink")),
            "server": spark.read.format("pipestream").options(**options).load(),
            "bare": spark.read.format("bare").load(str(work / "bare")),
        }
        sums = {name: frame.selectExpr("count(*)", "sum(length(content))").first() for name, frame in frames.items()}
        if set(sums.values()) != {(rows, rows * size)}:
            raise RuntimeError(f"the sources do not have the same rows: {sums}")
        made = bench.interleaved({name: _job(bench, frame) for name, frame in frames.items()})
    for name, missed in MISSED.items():
        bench.record(
            f"{rows} rows of {size >> 10} KiB, {name}",
            "s",
            made[name],
            peer=made["bare"],
            peer_name="bare Arrow source",
            ratio_of="peer/ours",
            bar=at_least(0.8),
            missed=missed,
        )


def _job(bench: Bench, frame: Any) -> Any:
    return lambda: bench.seconds(lambda: frame.write.format("noop").mode("overwrite").save())


@contextmanager
def _server(work: Path) -> Iterator[tuple[str, str]]:
    (work / "key").write_text(KEY)
    command = [sys.executable, "-m", "penstock", "pipestream", "serve", "--listen", "127.0.0.1:0"]
    command += ["--sink", str(work / "sink"), "--read-key-file", str(work / "key"), "--log-level", "error"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        if process.stdout is None:
            raise RuntimeError("the server has no stdout")
        _, address, _, fingerprint = process.stdout.readline().split()
        try:
            yield address, fingerprint
        finally:
            process.terminate()


def _fill(address: str, fingerprint: str, sink: Path, size: int, rows: int) -> None:
    from penstock.pipestream import Session, SinkReader

    payload = bytes(range(256)) * (size // 256)
    metadata = {"penstock.document": "a.zip", "penstock.path": '["b.bin"]'}
    with Session.connect(address, fingerprint=fingerprint) as session:
        for _ in range(rows):
            session.send(payload, metadata=metadata)
    while not SinkReader(sink).sessions():
        pass


def _write_bare(sink: Path, bare: Path) -> None:
    from penstock.pipestream import ROW_SCHEMA
    from penstock.spark import PipeStreamDataSource
    from penstock.spark.pipestream.source import ROW_COLUMNS

    bare.mkdir()
    reader = PipeStreamDataSource({"path": str(sink)}).reader(ROW_COLUMNS)
    for number, partition in enumerate(reader.partitions()):
        with pa.OSFile(str(bare / f"{number:03}.arrow"), "wb") as file, pa.ipc.new_stream(file, ROW_SCHEMA) as writer:
            for batch in partition.read():
                writer.write_batch(batch)
