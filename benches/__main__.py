"""``python -m benches [NAME ...]``: run suites and write their results and the page."""

import sys
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Annotated

import typer
from rich.console import Console

from benches import suites
from benches.runner import Bench, Record, against, scaling_page
from benches.runner.builds import Builds
from benches.runner.machine import REPOSITORY, commit, machine
from benches.runner.page import read_all, render
from benches.runner.results import SuiteResults

RESULTS = REPOSITORY / "benches" / "results"


def names() -> list[str]:
    """All suites; helpers have a leading underscore."""
    return [module.name for module in iter_modules(suites.__path__) if not module.name.startswith("_")]


def measure(module: ModuleType, name: str, run: Callable[[], list[Record]], *, quick: bool, results: Path) -> None:
    """Write the file of what was measured; its title is the first line of the module."""
    where, what, before = machine(), commit(), time.monotonic()
    records = run()
    SuiteResults(
        suite=name,
        title=(module.__doc__ or name).splitlines()[0].rstrip("."),
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        commit=what,
        quick=quick,
        seconds=round(time.monotonic() - before, 1),
        machine=where,
        results=records,
    ).write(results)


def run_suite(name: str, *, quick: bool, results: Path, console: Console, builds: Builds) -> None:
    """Run one suite and write its file."""
    suite = import_module(f"benches.suites.{name}")
    bench = Bench(name, quick=quick, console=console, builds=builds)

    def run() -> list[Record]:
        suite.run(bench)
        return bench.records

    measure(suite, name, run, quick=quick, results=results)


def run_against(earlier: Path, suites: list[str], *, rounds: int, quick: bool, results: Path, console: Console) -> None:
    """Run suites in another checkout and here, and write ``against.json``."""

    def run() -> list[Record]:
        speeds = partial(against.speeds, earlier.resolve(), rounds=rounds, quick=quick, console=console)
        return [record for name in suites for record in speeds(name)]

    measure(against, against.NAME, run, quick=quick, results=results)


def pages() -> dict[Path, str]:
    """The pages that are made from the files in benches/results, and what they say."""
    results = read_all(RESULTS)
    text, docs = render(results), REPOSITORY / "docs"
    made = {RESULTS / "README.md": text, docs / "benchmarks.md": text}
    for suite in results:
        if suite.suite == "scaling":
            made[docs / "scaling.md"] = scaling_page.render(suite)
    return made


def _write_pages() -> None:
    for path, text in pages().items():
        path.write_text(text)


def main(
    chosen: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Suites; all if none.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", envvar="BENCH_QUICK", help="Tiny sizes, one run: only shows that suites work.")
    ] = False,
    results: Annotated[
        Path | None, typer.Option(help="Folder for the JSON files; benches/results, and for quick runs none.")
    ] = None,
    page: Annotated[bool, typer.Option("--page", help="Run nothing, write the pages from the files.")] = False,
    earlier: Annotated[
        Path | None, typer.Option("--against", help="Another checkout: run the suites there and here, in turn.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="With --against: how often each suite runs in each.")] = 3,
) -> None:
    """Measure penstock against its peers, interleaved, and write JSON and a page."""
    console = Console()
    if page:
        _write_pages()
        return
    unknown = set(chosen or []) - set(names())
    if unknown:
        console.print(f"no such suite: {', '.join(sorted(unknown))}; there are {', '.join(names())}")
        raise typer.Exit(2)
    if quick and results is None:
        results = REPOSITORY / "target" / "bench-quick"
    if earlier:
        run_against(earlier, chosen or names(), rounds=rounds, quick=quick, results=results or RESULTS, console=console)
        if results is None:
            _write_pages()
        return
    builds, failed = Builds(console, quick=quick), []
    for name in chosen or names():
        try:
            run_suite(name, quick=quick, results=results or RESULTS, console=console, builds=builds)
        except Exception:  # noqa: BLE001 - the other suites still run, and the command fails
            traceback.print_exc()
            failed.append(name)
    if results is None:
        _write_pages()
    if failed:
        console.print(f"failed: {', '.join(failed)}", style="red")
        sys.exit(1)


if __name__ == "__main__":
    typer.run(main)
