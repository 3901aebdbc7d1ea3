"""`Bench`: what a suite measures with."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benches.runner.builds import OURS, PEERS, Builds
from benches.runner.results import Bar, Ratio, Record, Values

T = TypeVar("T")


class Bench:
    """Interleaved runs, builds and records of one suite.

    `quick` asks for the smallest sizes that still go every way: the figures are worth nothing then.
    """

    def __init__(self, suite: str, *, quick: bool, console: Console, builds: Builds) -> None:
        self.suite = suite
        self.quick = quick
        self.console = console
        self.records: list[Record] = []
        self._builds = builds

    # Builds.

    def program(self, name: str, *, package: str = "penstock-bench") -> Path:
        """A program of ours from benches/rust (or another package of the workspace), built in release."""
        return self._builds.program(package, name, OURS)

    def peer(self, name: str, *, package: str | None = None) -> Path:
        """A peer's program from benches/peers, built in release; its package has the program's name."""
        return self._builds.program(package or name, name, PEERS)

    def use_extension(self) -> dict[str, str]:
        """Make `import penstock` that of a release build, here and in processes started with what this returns.

        Call it first in `run`, and import penstock after it, inside functions.
        """
        return self._builds.use_extension()

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A folder for what a suite writes, beside the builds, removed at the end.

        Not in the folder for temporary files, where others make and remove theirs: ext4 without a journal steps over
        every inode that was removed in the last minutes, one by one, which makes the files of a sink three times as
        dear. For the same reason nothing is removed between runs.
        """
        above = self._builds.target()
        above.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=above, prefix=f"bench-{self.suite}-") as folder:
            yield Path(folder)

    # Measuring.

    def sized(self, full: int, quick: int) -> int:
        """A size that depends on whether this is a quick run."""
        return quick if self.quick else full

    def interleaved(
        self, sides: Mapping[str, Callable[[], T]], *, runs: int = 5, warm_up: bool = True
    ) -> dict[str, list[T]]:
        """Call the sides in turn (A B A B ...), `runs` times each after one that does not count.

        What a call returns is what was measured: a number, or anything that the suite takes numbers from. A machine
        that becomes slower or faster meanwhile does so to all sides.
        """
        runs = 1 if self.quick else runs
        values: dict[str, list[T]] = {name: [] for name in sides}
        with self._progress((runs + warm_up) * len(sides)) as advance:
            for run in range(-int(warm_up), runs):
                for name, call in sides.items():
                    value = advance(f"{name} {'warm-up' if run < 0 else run + 1}", call)
                    if run >= 0:
                        values[name].append(value)
        return values

    def pair(
        self,
        name: str,
        unit: str,
        *,
        ours: Callable[[], float],
        peer: Callable[[], float],
        peer_name: str,
        ratio_of: Ratio,
        bar: Bar | None = None,
        runs: int = 5,
        note: str | None = None,
        missed: str | None = None,
    ) -> Record:
        """Run both sides interleaved and record them; the arguments are those of `record`."""
        values = self.interleaved({"penstock": ours, peer_name: peer}, runs=runs)
        return self.record(
            name,
            unit,
            values["penstock"],
            peer=values[peer_name],
            peer_name=peer_name,
            ratio_of=ratio_of,
            bar=bar,
            note=note,
            missed=missed,
        )

    def record(
        self,
        name: str,
        unit: str,
        ours: Sequence[float],
        *,
        peer: Sequence[float] | None = None,
        peer_name: str | None = None,
        ratio_of: Ratio | None = None,
        bar: Bar | None = None,
        note: str | None = None,
        missed: str | None = None,
    ) -> Record:
        """Record what was measured.

        With a peer the bar is for the ratio: the median of the ratios of runs that followed one another. Without one
        it is for the median itself. `missed` is why a bar is missed (profile and arithmetic); it is shown only then.
        """
        ratio = None
        if peer is not None:
            if ratio_of is None or peer_name is None:
                raise ValueError("a peer needs peer_name and ratio_of")
            pairs = zip(ours, peer, strict=True)
            ratios = [a / b if ratio_of == "ours/peer" else b / a for a, b in pairs]
            ratio = float(f"{median(ratios):.4g}")
        mine = Values.of(ours)
        met = bar.is_met(ratio if ratio is not None else mine.median) if bar else None
        notes = [text for text in (note, missed if met is False else None) if text]
        record = Record(
            suite=self.suite,
            name=name,
            unit=unit,
            ours=mine,
            peer=Values.of(peer, peer_name) if peer is not None else None,
            ratio=ratio,
            ratio_of=ratio_of,
            bar=bar,
            met=met,
            note=" ".join(notes) or None,
        )
        self.records.append(record)
        self._say(record)
        return record

    def json_of(self, *command: str | Path, env: dict[str, str] | None = None, timeout: float = 600) -> Any:
        """Run a program and read the last line that it prints as JSON."""
        done = subprocess.run(
            [str(part) for part in command], env=env, stdout=subprocess.PIPE, text=True, check=True, timeout=timeout
        )
        return json.loads(done.stdout.strip().splitlines()[-1])

    @staticmethod
    def seconds(call: Callable[[], object]) -> float:
        """How long a call takes, by the wall clock."""
        before = time.perf_counter()
        call()
        return time.perf_counter() - before

    @contextmanager
    def _progress(self, total: int) -> Iterator[Callable[[str, Callable[[], T]], T]]:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn())
        with Progress(*columns, TimeElapsedColumn(), console=self.console, transient=True) as progress:
            task = progress.add_task(self.suite, total=total)

            def advance(what: str, call: Callable[[], T]) -> T:
                progress.update(task, description=f"{self.suite}: {what}")
                value = call()
                progress.advance(task)
                return value

            yield advance

    def _say(self, record: Record) -> None:
        text = f"{record.suite}: {record.name}: {record.ours.median:g} {record.unit}"
        if record.peer:
            text += f", {record.peer.name} {record.peer.median:g}, {record.ratio_of} {record.ratio}"
        if record.bar:
            text += f" ({record.bar}: {'met' if record.met else 'MISSED'})"
        self.console.print(text, style="red" if record.met is False else None, highlight=False)
