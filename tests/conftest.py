"""What every Python test may use."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
from scripts import spark_classes
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from penstock import __version__
from penstock._java import find_java

Run = Callable[..., subprocess.CompletedProcess[str]]


def pytest_report_header() -> list[str]:
    java = find_java()
    lines = [f"penstock: {__version__}, java: {f'{java.major} from {java.source}' if java else 'none'}"]
    if java is not None and not spark_classes.ARCHIVE.exists():
        lines.append("SLOW: each start of Spark takes three times the CPU; once, run `python scripts/spark_classes.py`")
    return lines


_SPARK = ("cluster", "spark", "demo")
"""The folders whose tests are marked `spark`. They come first: last they would have one core alone for minutes."""

_MINUTES = (
    "tests/api/test_docs_examples.py",
    "tests/vgi/test_reference.py",
    "tests/servers/test_listeners.py",
    "tests/faults/test_state.py",
    "tests/api/test_pipestream_survival.py",
    "tests/conformance/pipestream/test_client_evil_servers.py",
)
"""Other files that would. The longest is in front."""

_OWN_CLUSTER = ("tests/cluster/test_connect.py",)
"""A third of the folder's time: a second cluster, which takes seconds, is worth it."""

_RETRYING = ("tests/spark/test_pipestream_sink.py", "tests/spark/test_quicx.py", "tests/spark/test_retries.py")
"""Their session lets a task fail twice, and no other's does: side by side, they share one."""

_STARTS_SPARK = ("tests/api/test_docs_examples.py",)
"""What needs the cores as the folders with Spark do, though not all of its tests do."""


def group(nodeid: str) -> str:
    """Name what one worker runs, whole: a file, whose tests share fixtures, or files that share a cluster or a session.

    >>> group("tests/cluster/test_logs.py::test_a[b::c]"), group("tests/api/test_cli.py::test_x")
    ('tests/cluster', 'tests/api/test_cli.py')
    >>> group("tests/spark/test_quicx.py::test_x")
    'tests/spark/retrying'
    """
    file = nodeid.partition("::")[0]
    if file in _RETRYING:
        return "tests/spark/retrying"
    return "tests/cluster" if file.startswith("tests/cluster/") and file not in _OWN_CLUSTER else file


def needs_cores(name: str) -> bool:
    """Whether a group starts JVMs, which take all of two cores; the tests of the others wait for most of their time.

    >>> needs_cores("tests/cluster"), needs_cores("tests/spark/test_pimp.py"), needs_cores("tests/pimp/test_pimp_x.py")
    (True, True, False)
    """
    return name.split("/")[1] in _SPARK or name in _STARTS_SPARK


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs Spark, and put it first, and then what takes minutes."""

    def rank(item: pytest.Item) -> int:
        folder = item.nodeid.split("/")[1]
        if folder in _SPARK:
            return _SPARK.index(folder)
        name = group(item.nodeid)
        return len(_SPARK) + (_MINUTES.index(name) if name in _MINUTES else len(_MINUTES))

    items.sort(key=lambda item: (rank(item), item.nodeid.partition("::")[0] not in _RETRYING))
    for item in items:
        if rank(item) < len(_SPARK) or "java" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")


class GroupScheduling(LoadScopeScheduling):
    """Gives each worker whole groups, in the order of the collection: every other worker those that need the cores.

    There are more workers than cores. While half of them wait, the others have something to compute; when no group of
    its kind is left, a worker takes one of the other kind.

    xdist's own `loadgroup` writes groups behind the IDs of tests, which pytest 9.2 ignores (pytest-xdist#1386).
    """

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        wanted = self.nodes.index(node) % 2 == 0
        name = next((name for name in self.workqueue if needs_cores(name) == wanted), None)
        if name is not None:
            self.workqueue.move_to_end(name, last=False)
        super()._assign_work_unit(node)


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


_RUN = "PENSTOCK_TEST_RUN"
"""In the environment of all that a run starts."""


def pytest_configure(config: pytest.Config) -> None:
    """Mark what the run starts, and let every JVM of Spark start soon."""
    if not hasattr(config, "workerinput"):
        os.environ[_RUN] = uuid4().hex
        os.environ["SPARK_SUBMIT_OPTS"] = spark_classes.OPTIONS


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run if a group was divided, so that its fixtures were made more than once, or if something is left."""
    if hasattr(session.config, "workerinput"):
        return
    faults = [
        f"SEVERAL WORKERS ran tests of {name}: {', '.join(sorted(workers))}"
        for name, workers in sorted(_WORKERS.items())
        if len(workers) > 1
    ]
    faults += [f"LEFT BEHIND: {what}" for what in _left_behind()]
    if faults:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print("\n" + "\n".join(faults))


_END_WITH_US = ("java", "resource_tracker", "forkserver", "penstock._pdf_worker")
"""In the command lines of processes that this one has started, and that end with it."""


def _left_behind(patience: float = 20.0) -> list[str]:
    """Find processes and mounts of the run that are still there; what ends with this process is not meant."""
    until = time.monotonic() + patience
    while (left := _processes()) and time.monotonic() < until:
        time.sleep(0.2)
    mounts = Path("/proc/self/mounts")
    found = mounts.read_text().splitlines() if mounts.exists() else []
    return left + [line for line in found if "/pytest-of-" in line]


def _processes() -> list[str]:
    mark = f"{_RUN}={os.environ[_RUN]}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            own = f"PPid:\t{os.getpid()}\n" in (process / "status").read_text()
            ends = own and any(name in command for name in _END_WITH_US)
            if command and not ends and mark in (process / "environ").read_bytes().split(b"\0"):
                found.append(f"process {process.name}: {command[:200]}")
    return found


@pytest.fixture(scope="session")
def java() -> None:
    """Skip what starts Spark where there is no Java for it."""
    if find_java() is None:
        pytest.skip("NOT TESTED: Spark; there is no Java for it: `penstock doctor` says how to get one")


@pytest.fixture
def penstock() -> Run:
    """Run the command line in a process of its own: `penstock("doctor", "--json")`."""

    def run(*arguments: str, timeout: float = 60, **options: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "penstock", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, **options)

    return run


@pytest.fixture
def usage(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line that is wrong in this process, which costs a hundredth: it says so, and begins nothing."""
    from typer.testing import CliRunner

    from penstock.cli import app

    def run(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        line = list(map(str, arguments))
        with monkeypatch.context() as patch:
            if cwd is not None:
                patch.chdir(cwd)
            ended = CliRunner().invoke(app, line, catch_exceptions=False)
        return subprocess.CompletedProcess(line, ended.exit_code, ended.stdout, ended.stderr)

    return run
