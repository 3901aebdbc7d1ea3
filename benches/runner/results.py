"""Results: what a suite records, and the JSON file of each suite."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

Ratio = Literal["ours/peer", "peer/ours"]


@dataclass(frozen=True)
class Bar:
    """What a ratio, or a value without a peer, must reach."""

    sense: Literal["at_least", "at_most"]
    limit: float

    def is_met(self, value: float) -> bool:
        """Whether the value is on the right side; the limit itself is."""
        return value >= self.limit if self.sense == "at_least" else value <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.sense == 'at_least' else '≤'} {self.limit:g}"


def at_least(limit: float) -> Bar:
    """A bar that larger values meet."""
    return Bar("at_least", limit)


def at_most(limit: float) -> Bar:
    """A bar that smaller values meet."""
    return Bar("at_most", limit)


@dataclass(frozen=True)
class Values:
    """What one side gave, run by run."""

    median: float
    min: float
    max: float
    runs: int
    values: list[float]
    name: str | None = None

    @classmethod
    def of(cls, values: Sequence[float], name: str | None = None) -> "Values":
        """Both ends and the median of what was measured, to six digits."""
        rounded = [float(f"{value:.6g}") for value in values]
        median = float(f"{statistics.median(rounded):.6g}")
        return cls(median, min(rounded), max(rounded), len(rounded), rounded, name)


@dataclass(frozen=True)
class Record:
    """One line of the page."""

    suite: str
    name: str
    unit: str
    ours: Values
    peer: Values | None
    ratio: float | None
    ratio_of: Ratio | None
    bar: Bar | None
    met: bool | None
    note: str | None


@dataclass
class SuiteResults:
    """The file of a suite."""

    suite: str
    title: str
    date: str
    commit: str
    quick: bool
    seconds: float
    machine: dict[str, Any]
    results: list[Record] = field(default_factory=list)

    def write(self, folder: Path) -> Path:
        """Write ``folder/SUITE.json``, whole or not at all."""
        value = asdict(self)
        for record, made in zip(value["results"], self.results, strict=True):
            record["bar"] = {made.bar.sense: made.bar.limit} if made.bar else None
            _drop_name(record["ours"])
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.suite}.json"
        partial = path.with_suffix(".json.new")
        partial.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
        return partial.replace(path)

    @classmethod
    def read(cls, path: Path) -> "SuiteResults":
        """What `write` has written."""
        value = json.loads(path.read_text())
        value["results"] = [_record(record) for record in value["results"]]
        return cls(**value)


def _drop_name(ours: dict[str, Any]) -> None:
    del ours["name"]


def _record(value: dict[str, Any]) -> Record:
    value["ours"] = Values(**value["ours"])
    value["peer"] = Values(**value["peer"]) if value["peer"] else None
    for sense, limit in (value["bar"] or {}).items():
        value["bar"] = Bar(sense, limit)
    return Record(**value)
