"""What the guards share: the repository's files, and the count of what each guard saw.

A guard that looks at nothing passes for ever, after a folder moved for example. So each says how many things it saw
and how many it must see at least, and the counts are printed at the end of the run.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

_SAW = "saw"


@pytest.fixture(scope="session")
def repository() -> Path:
    return Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def tracked(repository: Path) -> list[Path]:
    """The files that git knows, or would add: those of a clone."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted(path for name in listed.stdout.split("\0") if name and (path := repository / name).is_file())


@pytest.fixture
def saw(request: pytest.FixtureRequest) -> Callable[[int, str, int], None]:
    """Record `count` things that the guard saw, and fail where there are fewer than `at_least`."""

    def record(count: int, what: str, at_least: int) -> None:
        assert count >= at_least, f"saw {count} {what}, which cannot be: at least {at_least} are there"
        # A property of the test, because another process may run it than the one that prints the summary.
        request.node.user_properties.append((_SAW, f"{request.node.name}: {count} {what}"))

    return record


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [each for name in ("passed", "failed") for each in terminalreporter.stats.get(name, [])]
    counts = [text for each in reports if each.when == "call" for name, text in each.user_properties if name == _SAW]
    if counts:
        terminalreporter.section("what the guards saw")
        for line in counts:
            terminalreporter.write_line(line)
