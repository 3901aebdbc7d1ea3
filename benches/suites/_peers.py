"""What the suites of the transport have in common: calls of the programs, and records of what they print."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benches.runner import Bench

TUNED = 6_500
"""The largest UDP payload between processes of one machine, unless a user says otherwise."""
DEFAULT = 1_452
"""The same between machines."""


def command(program: Path, *words: str | int, **options: int | str) -> Callable[..., Any]:
    """Make the words of a call: `command(ours, "streams", size=1024)`."""
    named = [str(word) for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    return lambda bench: bench.json_of(program, *map(str, words), *named)


def call(bench: Bench, program: Path, *words: str, **options: int | str) -> Any:
    """Run a program and give what it printed."""
    return command(program, *words, **options)(bench)


def sized_name(size: int) -> str:
    """1 KiB, 4 MiB, 4 GiB."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << power:
            return f"{size >> power} {unit}"
    return f"{size} bytes"


def column(runs: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    """One figure of every run."""
    return [float(run[name]) for run in runs]


def record_costs(bench: Bench, what: str, runs: Sequence[Mapping[str, Any]], size: int) -> None:
    """CPU time of both ends: for each entity where it is small, for each byte where it is large."""
    for end in ("sender", "receiver"):
        cost = column(runs, f"{end}_cpu_us")
        if size < 1 << 20:
            bench.record(f"{what}, {end}", "µs CPU/entity", cost)
        else:
            bench.record(f"{what}, {end}", "ns CPU/byte", [value * 1e3 / size for value in cost])
