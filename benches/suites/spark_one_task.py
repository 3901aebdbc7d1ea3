"""Documents in Spark: the one-task plan against a mapInArrow body of plain Python.

Both sides take the same source distributions apart in Spark, in one partition, and give a row for each part with its
type, text and SHA-256. penstock sends the bytes to a sink in a process of its own, over QUIC with TLS, and waits until
every part is settled; the peer (`benches/peers/plain_python`) puts them into its rows and sends nothing. Start-up is
outside: the first runs of each do not count, and Spark's workers live on. The number of rows must be nearly the same.
"""

import os
import sys
import tarfile
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

from benches.runner import Bench, at_least

_PEER = "plain Python"
_BODY = Path(__file__).parent.parent / "peers" / "plain_python"
# The JVM has compiled what it will after some jobs.
_WARM_UP = 4
_MISSED = {
    "all": (
        "CPU time of a run: 0.52 s the task, 0.56 s its readers of PDFs, 0.18 s the sink, 0.1 s the JVM, 1.36 s in "
        "all, which two cores do in no less than 0.68 s. The peer takes 1.3 s, 1.25 s of it in Python and pdfium. Three"
        " times as fast would be 0.87 s of CPU, and pdfium alone is 0.56 s of that, the same C++ on both sides: 0.31 s "
        "would be left to inflate, hash, encrypt, send, receive and write, which take 0.7 s."
    ),
    "without PDFs": (
        "CPU time of a run: 0.37 s the task, 0.13 s the sink, 0.1 s the JVM, 0.03 s a reader of PDFs, 0.63 s in all, "
        "which two cores do in no less than 0.32 s; the peer takes 0.70 s and sends nothing. A job of Spark that does "
        "nothing takes 0.09 s, so three times as fast would leave 0.14 s, 0.28 s of CPU; inflating "
        "takes 0.06 s of the task, hashing 0.055 s, QUIC 0.08 s on both ends, and the sink writes a file for each part."
    ),
}


def run(bench: Bench) -> None:
    environment = bench.use_extension()
    with ExitStack() as stack:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(_BODY), environment.get("PYTHONPATH", "")])
        sys.path.insert(0, str(_BODY))
        folder = stack.enter_context(bench.folder())
        # Where the workers' temporary files go.
        os.environ["TMPDIR"] = str(folder)
        corpora = _corpora(folder)
        spark, sink = _start(stack, folder)
        for name, documents in corpora.items():
            _compare(bench, name, [str(path) for path in documents], spark, sink)


def _corpora(folder: Path) -> dict[str, list[Path]]:
    """The demo's documents; and the same with everything left out that is a PDF."""
    from penstock._demo.fetch import fetch

    fetched = Path("target", "bench-documents")
    fetch(fetched)
    whole = sorted(path.absolute() for path in fetched.glob("*.tar.gz"))
    (folder / "without").mkdir()
    for path in whole:
        with tarfile.open(path) as source, tarfile.open(folder / "without" / path.name, "w:gz") as target:
            for member in source:
                if member.isfile() and not member.name.endswith(".pdf"):
                    target.addfile(member, source.extractfile(member))
    return {"all": whole, "without PDFs": sorted((folder / "without").iterdir())}


def _start(stack: ExitStack, folder: Path) -> tuple[Any, Any]:
    from penstock._demo.sink import SinkProcess
    from penstock.spark import local_session

    sink = stack.enter_context(SinkProcess(folder / "sink", folder / "events.jsonl", folder / "sink.log"))
    settings = {"spark.log.level": "ERROR", "spark.ui.enabled": "false"}
    return stack.enter_context(local_session("bench", master="local[1]", config=settings)), sink


def _compare(bench: Bench, name: str, paths: list[str], spark: Any, sink: Any) -> None:
    body = import_module("body")  # found once run() has put the peer's folder on the path
    from pyspark.sql.pandas.types import from_arrow_schema

    from penstock.spark import PART_SCHEMA, dehydrate

    apart = dehydrate(sink.address, fingerprint=sink.fingerprint)
    frame = spark.createDataFrame([(path,) for path in paths], "path string").coalesce(1)
    sides = {
        "penstock": frame.mapInArrow(apart, PART_SCHEMA),
        _PEER: frame.mapInArrow(body.take_apart, from_arrow_schema(body.SCHEMA)),
    }
    rows = {side: data.count() for side, data in sides.items()}
    if abs(rows["penstock"] - rows[_PEER]) > 0.02 * rows[_PEER]:
        raise RuntimeError(f"not the same work: {rows}")

    def write(side: str) -> float:
        return bench.seconds(lambda: sides[side].write.format("noop").mode("overwrite").save())

    for side in [*sides] * bench.sized(_WARM_UP, 0):
        write(side)
    bench.pair(
        f"the demo's documents, {name}",
        "s",
        ours=lambda: write("penstock"),
        peer=lambda: write(_PEER),
        peer_name=_PEER,
        ratio_of="peer/ours",
        bar=at_least(3.0),
        runs=9,
        note=f"{rows['penstock']} rows, one task.",
        missed=_MISSED[name],
    )
