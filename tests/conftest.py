"""What every Python test may use."""

import subprocess
import sys
from collections.abc import Callable

import pytest
from xdist.scheduler import LoadScopeScheduling

from penstock import __version__
from penstock._java import find_java

Run = Callable[..., subprocess.CompletedProcess[str]]


def pytest_report_header() -> list[str]:
    java = find_java()
    return [f"penstock: {__version__}, java: {f'{java.major} from {java.source}' if java else 'none'}"]


_FIRST = ("cluster", "spark", "demo")
"""What takes longest, so that it does not come last on a core of its own."""


def group(nodeid: str) -> str:
    """Name what one worker runs, whole: a file, whose tests share fixtures, or the folder that shares a cluster.

    >>> group("tests/cluster/test_logs.py::test_a[b::c]"), group("tests/api/test_cli.py::test_x")
    ('tests/cluster', 'tests/api/test_cli.py')
    """
    file = nodeid.partition("::")[0]
    return "tests/cluster" if file.startswith("tests/cluster/") else file


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put first what takes longest."""

    def rank(item: pytest.Item) -> int:
        folder = item.nodeid.split("/")[1]
        return _FIRST.index(folder) if folder in _FIRST else len(_FIRST)

    items.sort(key=rank)


class GroupScheduling(LoadScopeScheduling):
    """Gives each worker whole groups, in the order of the collection.

    xdist's own `loadgroup` writes groups behind the IDs of tests, which pytest 9.2 ignores (pytest-xdist#1386).
    """

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> GroupScheduling:
    """Take the scheduler above for `-n`, whatever `--dist` says."""
    config.option.loadscopereorder = False
    return GroupScheduling(config, log)


_WORKERS: dict[str, set[str]] = {}
"""The workers that have run tests of a group, as far as the process that divides the work has heard."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note who ran a test."""
    if report.when == "call" and (worker := getattr(report, "worker_id", None)) is not None:
        _WORKERS.setdefault(group(report.nodeid), set()).add(worker)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run if a group was divided: its fixtures, a Spark session or a cluster, were made more than once."""
    divided = sorted(name for name, workers in _WORKERS.items() if len(workers) > 1)
    if divided and not hasattr(session.config, "workerinput"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print(f"\nSEVERAL WORKERS ran tests of one group: {', '.join(divided)}")


@pytest.fixture
def penstock() -> Run:
    """Run the command line in a process of its own: `penstock("doctor", "--json")`."""

    def run(*arguments: str, timeout: float = 60, **options: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "penstock", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, **options)

    return run
