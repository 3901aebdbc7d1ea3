"""What the tests of the Python surface share."""

import subprocess
import sys
from collections.abc import Callable

import pytest


@pytest.fixture
def run_python() -> Callable[[str], str]:
    """Run a program in a fresh interpreter and give what it printed."""

    def run(program: str) -> str:
        command = [sys.executable, "-c", program]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

    return run
