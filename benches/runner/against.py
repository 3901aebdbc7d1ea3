"""Another checkout of penstock as the peer: does a change make anything slower?

Each checkout runs its own suites, in a process and a target folder of its own, so that both measure what a user of that
commit had.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from rich.console import Console

from benches.runner.machine import REPOSITORY, commit
from benches.runner.results import Ratio, Record, SuiteResults, Values, at_least

NAME = "against"
FLOOR = at_least(0.97)
"""A change may cost 3 %, which is what one run differs from the next by on a quiet machine."""

Key = tuple[str, str]


def speeds(earlier: Path, suite: str, *, rounds: int, quick: bool, console: Console) -> list[Record]:
    """Run a suite in both checkouts, in turn; return a record of each of its lines that both have.

    Each round gives one value, the median of the runs in it. A ratio above 1 is faster than before.
    """
    found: dict[Path, list[dict[Key, Record]]] = {earlier: [], REPOSITORY: []}
    for number in range(rounds):
        for checkout, lines in found.items():
            console.print(f"{suite}, round {number + 1} of {rounds}: {checkout}", style="dim")
            lines.append(_run(checkout, suite, quick=quick))
    name = f"before, {commit(earlier)}"
    shared = set.intersection(*(set(line) for lines in found.values() for line in lines))
    return [
        compare(suite, [line[key] for line in found[REPOSITORY]], [line[key] for line in found[earlier]], name)
        for key in found[REPOSITORY][0]
        if key in shared
    ]


def _run(checkout: Path, suite: str, *, quick: bool) -> dict[Key, Record]:
    with TemporaryDirectory(prefix="bench-against-") as folder:
        environment = {
            name: value for name, value in os.environ.items() if name not in ("CARGO_TARGET_DIR", "PYTHONPATH")
        }
        command = [sys.executable, "-m", "benches", suite, "--results", folder, *(["--quick"] if quick else [])]
        subprocess.run(command, cwd=checkout, env=environment, check=True)
        results = SuiteResults.read(Path(folder) / f"{suite}.json").results
    return {(record.name, record.unit): record for record in results}


def compare(suite: str, after: Sequence[Record], before: Sequence[Record], peer: str) -> Record:
    """Return the record of one line of a suite; both sides have one record for each round."""
    name, unit = after[0].name, after[0].unit
    now, then = [record.ours.median for record in after], [record.ours.median for record in before]
    # Of a rate more is better, of all else (seconds, bytes, CPU) less.
    ratio_of: Ratio = "ours/peer" if unit.endswith("/s") else "peer/ours"
    sides = zip(now, then, strict=True) if ratio_of == "ours/peer" else zip(then, now, strict=True)
    ratio = float(f"{median(_quotient(above, below) for above, below in sides):.4g}")
    met = FLOOR.is_met(ratio)
    return Record(
        NAME, f"{suite}: {name}", unit, Values.of(now), Values.of(then, peer), ratio, ratio_of, FLOOR, met, None
    )


def _quotient(above: float, below: float) -> float:
    return above / below if below else 1.0 if not above else float("inf")
