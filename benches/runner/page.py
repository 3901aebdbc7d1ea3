"""The page of all results, made from their JSON files alone, so that both say the same."""

from collections.abc import Sequence
from pathlib import Path

from benches.runner.results import Record, SuiteResults, Values

TOP = """\
# Benchmarks

`make bench` measures anew and writes this page from `benches/results/*.json`; `BENCH="heap merkle"` chooses suites.
Both sides of a line ran in turn, in one run, on one machine, in release builds, and did the same work
(`benches/README.md` says how that is seen to). Figures are medians, with the least and the most in brackets; a
ratio is the median of those of neighbouring runs. Trust ratios, not absolute figures: the machine is a small shared
one. A bar that is missed says why.
"""


def read_all(folder: Path) -> list[SuiteResults]:
    """The results of every suite, by name."""
    return [SuiteResults.read(path) for path in sorted(folder.glob("*.json"))]


def render(suites: Sequence[SuiteResults]) -> str:
    """The page."""
    parts = [TOP]
    barred = [record for suite in suites for record in suite.results if record.bar]
    missed = [record for record in barred if not record.met]
    if barred:
        parts.append(f"{len(barred) - len(missed)} of {len(barred)} bars are met.\n")
    parts += [_suite(suite) for suite in suites]
    return "\n".join(parts)


def _suite(suite: SuiteResults) -> str:
    lines = [f"## {suite.title}", "", "| | penstock | peer | ratio | bar |", "|---|---|---|---|---|"]
    lines += [_row(record) for record in suite.results]
    lines.append("")
    for record in suite.results:
        if record.note:
            lines += [f"**{record.name}**: {record.note}", ""]
    return "\n".join([*lines, _where(suite), ""])


def _row(record: Record) -> str:
    peer = f"{record.peer.name}: {_values(record.peer)}" if record.peer else ""
    ratio = f"{record.ratio:.3g} ({record.ratio_of})" if record.ratio is not None else ""
    bar = f"{record.bar}: {'met' if record.met else '**missed**'}" if record.bar else ""
    return f"| {record.name}, {record.unit} | {_values(record.ours)} | {peer} | {ratio} | {bar} |"


def _values(values: Values) -> str:
    if values.runs == 1:
        return _number(values.median)
    return f"{_number(values.median)} ({_number(values.min)} to {_number(values.max)})"


def _number(value: float) -> str:
    """Four digits are more than the machine is good for."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _where(suite: SuiteResults) -> str:
    machine = suite.machine
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"Suite `{suite.suite}`, {suite.date}, commit {suite.commit}, {suite.seconds:.0f} s; {machine['cpu']}, "
        f"{machine['cores']} cores, {machine['memory_gib']} GiB, {machine['kernel']}, load before "
        f"{machine['load_before']}; {versions}."
    )
