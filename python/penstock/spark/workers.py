"""Check which Python and which packages the executors of a running session have.

The probe is pickled by value and imports penstock only where it runs. An executor without penstock is therefore
reported, and its task does not fail.
"""

import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock import __version__
from penstock.errors import SparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Worker", "check_workers"]

_COLUMNS = "host string, executable string, python string, penstock string, pyarrow string, failure string"
_MOST_TASKS = 10_000


@dataclass(frozen=True)
class Worker:
    """The Python of an executor, as found by ``check_workers``."""

    host: str
    """The host name of the machine, as the machine itself reports it."""
    executable: str
    """The path of the Python interpreter."""
    python: str
    """The version of Python, for example ``3.11.7``."""
    penstock: str | None
    """The version of penstock; None if it is not installed."""
    pyarrow: str
    """The version of pyarrow."""
    problem: str | None
    """Why penstock would not work there; None if it would."""


def check_workers(spark: "SparkSession", *, tasks: int = 64) -> list[Worker]:
    """Run a small job that finds out which Python, penstock and pyarrow the executors have.

    This works with classic and Spark Connect sessions and needs penstock only on the driver. Spark decides where tasks
    run: an executor that gets no task is not in the list.

    Args:
        spark: A running session.
        tasks: How many short tasks to run; use at least as many as the cluster has cores for tasks.

    Returns:
        One entry for each distinct Python, sorted by host and executable.

    Raises:
        SparkError: ``tasks`` is not between 1 and 10,000.

    Example:
        >>> from penstock.spark import check_workers
        >>> check_workers(spark)  # doctest: +SKIP
        [Worker(host='node-1', executable='/opt/env/bin/python', python='3.11.7', penstock='0.1.0', ...)]
    """
    if not 1 <= tasks <= _MOST_TASKS:
        raise SparkError(f"tasks must be between 1 and {_MOST_TASKS}, not {tasks}")
    found = spark.range(0, tasks, 1, tasks).mapInArrow(_probe(), _COLUMNS).distinct().collect()
    driver = platform.python_version()
    workers = [
        Worker(
            host=row.host,
            executable=row.executable,
            python=row.python,
            penstock=row.penstock,
            pyarrow=row.pyarrow,
            problem=_problem(row.python, row.penstock, row.failure, driver),
        )
        for row in found
    ]
    return sorted(workers, key=lambda worker: (worker.host, worker.executable))


def _problem(python: str, penstock: str | None, failure: str | None, driver: str) -> str | None:
    if python.split(".")[:2] != driver.split(".")[:2]:
        return f"it has Python {python}, but the driver has {driver}: set PYSPARK_PYTHON"
    if failure is not None:
        return failure
    if penstock != __version__:
        return f"it has penstock {penstock}, but the driver has {__version__}: install the same wheel"
    return None


def _probe() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for ``mapInArrow``; it is nested so that it is pickled by value."""

    def probe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import platform
        import sys
        from importlib.metadata import PackageNotFoundError, version

        import pyarrow as pa

        for _ in batches:
            pass
        found: str | None = None
        failure: str | None = None
        try:
            found = version("penstock")
            from penstock import _core

            if _core.__version__ != found:
                failure = f"penstock is {found}, but its native part is {_core.__version__}: reinstall the wheel"
        except PackageNotFoundError:
            failure = "penstock is not installed"
        except ImportError as error:
            failure = f"the native part of penstock does not load: {error}"
        row = [platform.node(), sys.executable, platform.python_version(), found, version("pyarrow"), failure]
        names = ["host", "executable", "python", "penstock", "pyarrow", "failure"]
        yield pa.RecordBatch.from_arrays([pa.array([value], pa.string()) for value in row], names)

    return probe
