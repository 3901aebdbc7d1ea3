"""The stages of the demo, in order."""

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from penstock._demo.account import Account, take_account
from penstock._demo.aside import Aside
from penstock._demo.fetch import fetch
from penstock._demo.logs import LogShipping
from penstock._demo.pipeline import Listing, Pipeline
from penstock._demo.progress import Stages
from penstock._demo.publish import Published, show_published
from penstock._demo.report import print_report
from penstock._demo.sink import SinkProcess
from penstock.errors import Error
from penstock.spark.session import require_java

__all__ = ["DemoError", "Outcome", "run"]

_MARK = ".penstock-demo"
_OWN = (
    "sink",
    "results",
    "receipts",
    "summary.json",
    "events.jsonl",
    "sink.log",
    "spark.log",
    "worker.log",
    "logs",
    "logs.json",
    "jobs",
)

_LOGS = ("sink.log", "spark.log")

_SHOWN = {
    "what the sink received": "sink",
    "its events": "events.jsonl",
    "parts and composites": "results",
    "receipts": "receipts",
    "summary": "summary.json",
    "logs of the sink": "sink.log",
    "logs of Spark": "spark.log",
    "logs of the worker of the task queue": "worker.log",
    "logs that were shipped": "logs",
    "composites as they are published": "jobs",
}


class DemoError(Error):
    """The demo cannot run with the given folders."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of the demo."""

    summary: dict[str, object]
    """The content of ``summary.json``."""
    problems: list[str]
    """Whatever is not accounted for."""


def run(
    documents: Path | None, output: Path, console: Console, logs: list[Path] | None = None, *, opens: bool = False
) -> Outcome:
    """Run the whole pipeline on a folder of documents, or on those that pip fetches.

    Meanwhile Lumberjack ships the logs of the sink, of Spark, and those in ``logs``. At the end PIMP publishes the
    composites; if ``opens``, a browser shows them until the demo is interrupted or the jobs expire.

    Raises:
        penstock.Error: Something that the demo needs is missing, or the job failed.
    """
    begun = time.monotonic()
    # Checked before anything is fetched or removed.
    require_java()
    output = output.absolute()
    folder = output / "documents" if documents is None else documents.absolute()
    stages = Stages(console)
    _prepare(output, folder, stages)
    if documents is None:
        with stages.stage("fetching documents"):
            fetch(folder)
    listing = Listing(folder)
    if listing.documents == 0:
        raise DemoError(f"there are no documents in {folder}", "misuse")
    own = [output / name for name in _LOGS]
    with LogShipping([*own, *(logs or [])], output / "logs", output / "logs.json") as shipping:
        _compute(folder, output, listing, stages)
    with stages.stage("verifying", total=listing.documents) as stage:
        account = take_account(
            output / "results", output / "receipts", output / "sink", listing.documents, stage.advance
        )
    summary = _summary(account, time.monotonic() - begun)
    (output / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    places = {"documents": folder, **{what: output / name for what, name in _SHOWN.items()}}
    lost = [] if shipping.failed is None else [f"the logs were not shipped: {shipping.failed}"]
    with Published(output / "jobs") as published:
        with stages.stage("publishing", total=listing.documents) as stage:
            published.publish(output / "results" / "composites", stage.advance)
        print_report(console, account, stages.seconds, places, shipping.acknowledged)
        show_published(console, published, opens=opens)
    return Outcome(summary, account.problems + lost + published.problems)


def _compute(folder: Path, output: Path, listing: Listing, stages: Stages) -> None:
    """Run Spark and the sink, both of which have ended when this returns."""
    events = output / "events.jsonl"
    results = output / "results"
    with SinkProcess(output / "sink", events, output / "sink.log") as sink:
        with stages.stage("starting Spark"):
            pipeline = Pipeline(output / "spark.log")
        with pipeline:
            receipts = output / "receipts"
            with (
                stages.stage("splitting and sending", listing.documents, sink.metrics),
                Aside(listing.files, sink, receipts, results / "aside", output / "worker.log") as aside,
            ):
                pipeline.take_apart(folder, sink, receipts, results, aside)
            with stages.stage("putting together"):
                pipeline.put_together(results)


def _prepare(output: Path, documents: Path, stages: Stages) -> None:
    """Remove the output of an earlier run of the demo from the folder, and nothing else."""
    own = [output / name for name in _OWN]
    if documents.is_relative_to(output) and any(documents.is_relative_to(path) for path in own):
        raise DemoError(
            f"{documents} is written by the demo: choose another directory of documents, or another --output", "misuse"
        )
    if output.is_relative_to(documents):
        raise DemoError(f"the output {output} lies in the directory of documents: choose another --output", "misuse")
    mark = output / _MARK
    present = [path for path in own if path.exists()]
    if present and not mark.exists():
        raise DemoError(f"{present[0]} exists, but the demo did not write it: choose another --output", "misuse")
    output.mkdir(parents=True, exist_ok=True)
    mark.touch()
    if present:
        with stages.stage("removing the last run", len(present)) as stage:
            for done, path in enumerate(present, 1):
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()
                stage.advance(done)


def _summary(account: Account, seconds: float) -> dict[str, object]:
    parts = account.parts
    return {
        "documents": account.documents.total(),
        "parts": parts.total(),
        "complete": parts["COMPLETE"],
        "failed": parts["FAILED"],
        "skipped": parts["SKIPPED"],
        "bytes": account.bytes,
        "seconds": round(seconds, 3),
        "verified": account.verified,
    }
