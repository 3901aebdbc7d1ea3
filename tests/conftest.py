"""What every Python test may use."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from penstock import __version__
from penstock._java import find_java

Run = Callable[..., subprocess.CompletedProcess[str]]


def pytest_report_header() -> list[str]:
    java = find_java()
    return [f"penstock: {__version__}, java: {f'{java.major} from {java.source}' if java else 'none'}"]


@pytest.fixture
def penstock() -> Run:
    """Run the command line in a process of its own: `penstock("doctor", "--json")`."""

    def run(*arguments: str, timeout: float = 60, **options: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "penstock", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, **options)

    return run
