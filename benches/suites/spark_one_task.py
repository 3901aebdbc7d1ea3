"""Documents in Spark: the one-task plan against a mapInArrow body of plain Python.

Both sides take the same source distributions apart in Spark, in one partition, and give a row for each part with its
type, text and SHA-256. penstock sends the octets to a sink in a process of its own, over QUIC with TLS, and waits until
every part is settled; the peer (`benches/peers/plain_python`) puts them into its rows and sends nothing. Start-up is
outside: the first run of each does not count, and Spark's workers live on. The number of rows must be nearly the same.
"""

import os
import sys
import tarfile
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benches.runner import Bench, at_least

_PEER = "plain Python"
_BODY = Path(__file__).parent.parent / "peers" / "plain_python"
_MISSED = {
    "all": (
        "In one process the peer takes 1.4 s of CPU for these documents, 0.72 s of it in pdfium (FPDF_LoadPage, "
        "FPDFText_LoadPage), the same C++ on both sides: on one core nobody is more than 1.4 / 0.72 = 2 times as fast."
    ),
    "without PDFs": (
        "The peer neither encrypts nor sends. For python-docx it takes 0.44 s of CPU; our task takes 0.235 s, of which "
        "0.05 s go into sending, and the sink takes its share of the machine beside it: about 1.9 times as fast."
    ),
}


def run(bench: Bench) -> None:
    environment = bench.use_extension()
    with ExitStack() as stack:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(_BODY), environment.get("PYTHONPATH", "")])
        sys.path.insert(0, str(_BODY))
        folder = Path(stack.enter_context(TemporaryDirectory()))
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

    bench.pair(
        f"the demo's documents, {name}",
        "s",
        ours=lambda: write("penstock"),
        peer=lambda: write(_PEER),
        peer_name=_PEER,
        ratio_of="peer/ours",
        bar=at_least(3.0),
        note=f"{rows['penstock']} rows, one task.",
        missed=_MISSED[name],
    )
