"""What every suite gets: builds, interleaved runs, results and their page."""

from benches.runner.bench import Bench
from benches.runner.results import Bar, Record, at_least, at_most

__all__ = ["Bar", "Bench", "Record", "at_least", "at_most"]
