"""Another checkout of penstock as the peer: does a change make anything slower?

Each checkout runs its own suites, in a process and a target folder of its own, so that both measure what a user of that
commit had. The two processes run in turn, call by call (`in_turn`).
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from rich.console import Console

from benches.runner import in_turn
from benches.runner.builds import Builds
from benches.runner.in_turn import Place
from benches.runner.machine import REPOSITORY, commit
from benches.runner.results import Ratio, Record, SuiteResults, Values, at_least

NAME = "against"
FLOOR = at_least(0.97)
"""A change may cost 3 %."""

Key = tuple[str, str]


def speeds(earlier: Path, suite: str, *, rounds: int, quick: bool, console: Console) -> list[Record]:
    """Run a suite in both checkouts, in turn; return a record of each of its lines that both have.

    A ratio is the median of those of neighbouring runs. One above 1 is faster than before.
    """
    before: list[dict[Key, Record]] = []
    after: list[dict[Key, Record]] = []
    for number in range(rounds):
        console.print(f"{suite}, round {number + 1} of {rounds}", style="dim")
        first, second = _run((earlier, REPOSITORY), suite, quick=quick)
        before.append(first)
        after.append(second)
    name = f"before, {commit(earlier)}"
    shared = set.intersection(*(set(lines) for lines in [*before, *after]))
    return [
        compare(suite, [lines[key] for lines in after], [lines[key] for lines in before], name)
        for key in after[0]
        if key in shared
    ]


def _run(checkouts: tuple[Path, Path], suite: str, *, quick: bool) -> tuple[dict[Key, Record], dict[Key, Record]]:
    above = Builds.target()
    above.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=above, prefix="bench-against-") as folder:
        results = [Path(folder) / place for place in Place]
        options = ["--quick"] if quick else []
        words = [[suite, "--results", str(result), *options] for result in results]
        run_in_turn(dict(zip(checkouts, words, strict=True)), Path(folder))
        before, after = (_lines(SuiteResults.read(result / f"{suite}.json").results) for result in results)
    return before, after


def run_in_turn(arguments: Mapping[Path, Sequence[str]], folder: Path) -> None:
    """Run the benchmarks of two checkouts at once, of which one has the turn at any time; both write in `folder`."""
    environment = {name: value for name, value in os.environ.items() if name not in ("CARGO_TARGET_DIR", "PYTHONPATH")}
    to_first, from_second = os.pipe()
    to_second, from_first = os.pipe()
    pairs = (to_first, from_first), (to_second, from_second)
    with ExitStack() as stack:
        running = []
        for (checkout, words), place, pair in zip(arguments.items(), Place, pairs, strict=True):
            command = [sys.executable, in_turn.__file__, place, *map(str, pair), str(folder), *words]
            process = subprocess.Popen(command, cwd=checkout, env=environment, pass_fds=pair)
            running.append(stack.enter_context(process))
            # If the other fails.
            stack.callback(process.terminate)
        for end in (*pairs[0], *pairs[1]):
            os.close(end)
        for process in running:
            if process.wait():
                raise subprocess.CalledProcessError(process.returncode, process.args)


def _lines(records: Sequence[Record]) -> dict[Key, Record]:
    return {(record.name, record.unit): record for record in records}


def compare(suite: str, after: Sequence[Record], before: Sequence[Record], peer: str) -> Record:
    """Return the record of one line of a suite; both sides have one record for each round."""
    name, unit = after[0].name, after[0].unit
    # Of a rate more is better, of all else (seconds, bytes, CPU) less.
    ratio_of: Ratio = "ours/peer" if unit.endswith("/s") else "peer/ours"
    now, then = _runs([record.ours for record in after], [record.ours for record in before])
    ratio = _speed(now, then, ratio_of)
    met = FLOOR.is_met(ratio)
    notes = []
    if not met:
        slower = sum(_speed([one], [other], ratio_of) < 1 for one, other in zip(now, then, strict=True))
        notes.append(f"Slower in {slower} of {len(now)} pairs.")
        peers = [[record.peer for record in records if record.peer] for records in (after, before)]
        if all(peers):
            # The peer's program is the same in both checkouts: how far it is from 1 is what a ratio is worth here.
            notes.append(f"The peer of this line, the same on both sides, has {_speed(*_runs(*peers), ratio_of):.3g}.")
    return Record(
        NAME,
        f"{suite}: {name}",
        unit,
        Values.of(now),
        Values.of(then, peer),
        ratio,
        ratio_of,
        FLOOR,
        met,
        " ".join(notes) or None,
    )


def _runs(after: Sequence[Values], before: Sequence[Values]) -> tuple[list[float], list[float]]:
    """Return the figures of neighbouring runs: the medians where the checkouts do not run a side equally often."""
    if [values.runs for values in after] != [values.runs for values in before]:
        return [values.median for values in after], [values.median for values in before]
    return [value for values in after for value in values.values], [
        value for values in before for value in values.values
    ]


def _speed(now: Sequence[float], then: Sequence[float], ratio_of: Ratio) -> float:
    sides = zip(now, then, strict=True) if ratio_of == "ours/peer" else zip(then, now, strict=True)
    return float(f"{median(_quotient(above, below) for above, below in sides):.4g}")


def _quotient(above: float, below: float) -> float:
    return above / below if below else 1.0 if not above else float("inf")
