"""What every Python test may use."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import __version__
from penstock._java import find_java

Run = Callable[..., subprocess.CompletedProcess[str]]


def pytest_report_header() -> list[str]:
    java = find_java()
    return [f"penstock: {__version__}, java: {f'{java.major} from {java.source}' if java else 'none'}"]


_TESTS = Path(__file__).parent
_FIRST = ("cluster", "spark", "demo")
"""What takes longest, so that it does not come last on a core of its own."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let `-n 2` keep a file together, whose tests share a session of Spark, and the one cluster of a folder."""

    def folder(item: pytest.Item) -> str:
        return item.path.relative_to(_TESTS).parts[0]

    items.sort(key=lambda item: _FIRST.index(folder(item)) if folder(item) in _FIRST else len(_FIRST))
    for item in items:
        group = "cluster" if folder(item) == "cluster" else item.path.relative_to(_TESTS).as_posix()
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture
def penstock() -> Run:
    """Run the command line in a process of its own: `penstock("doctor", "--json")`."""

    def run(*arguments: str, timeout: float = 60, **options: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "penstock", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, **options)

    return run
